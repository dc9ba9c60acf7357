"""A config as functions and state, and one training step of them as a compiled program."""
