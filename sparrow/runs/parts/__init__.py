"""The parts of a run beside its steps, one `Part` a file: evaluation, saving, the log, stopping, ..."""
