"""From files, overrides and mappings to checked records, and back."""
