"""The training loop: the set-up of a run, steps, and every way a run can end."""
