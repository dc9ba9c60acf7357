"""Models that predict for an example: of one task, of several, and of candidates with their history."""
