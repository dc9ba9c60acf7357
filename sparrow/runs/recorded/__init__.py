"""The records that a run leaves for people: the log, TensorBoard files, lookups by row, versions, the report."""
