"""Errors that end a run early."""

from __future__ import annotations

import signal


class FolderError(ValueError):
    """A run folder that cannot be used as requested; the message is one sentence with the remedy."""


class RunError(RuntimeError):
    """A run that could not continue; the message gives the reason and the last checkpoint."""


class Elsewhere(RunError):
    """A failure of another process that all processes know of at the same batch: the state can still be saved."""


class Interrupted(KeyboardInterrupt):
    """A run that a signal stopped, with its state saved.

    Attributes:
      signal: SIGINT (Ctrl-C) or SIGTERM.
      step: the last step made.
    """

    def __init__(self, received: signal.Signals, step: int) -> None:
        self.signal, self.step = received, step
        super().__init__(f"stopped by {received.name} after step {step}")
