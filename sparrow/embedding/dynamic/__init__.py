"""Dynamic vocabularies: 64-bit ids that get rows of a table as they come, and lose them as they go."""
