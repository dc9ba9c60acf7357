"""The records of a run for people: the log, TensorBoard files, lookups by row, versions, the report."""
