"""What can be wrong with checkpoints."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A checkpoint that is not there, cannot be written, or does not fit; one sentence."""


class Damaged(CheckpointError):
    """A checkpoint whose files are not what was written."""
