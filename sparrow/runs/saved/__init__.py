"""The run folder and its checkpoints: saving, loading, resuming, starting from another run."""
