"""The training loop: batches in, steps out, evaluation, and every way a run can end."""
