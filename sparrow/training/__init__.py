"""The optimizer step, the loop, checkpoints and reports."""
