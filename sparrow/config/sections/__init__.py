"""The sections of a config: their fields, types and defaults."""
