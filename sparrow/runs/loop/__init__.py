"""The training loop: steps, evaluation, and every way a run can end."""
