"""Dynamic vocabularies: 64-bit ids that are admitted to the rows of a table, and evicted."""
