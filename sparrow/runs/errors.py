"""How a run can end before its time."""

from __future__ import annotations

import signal


class FolderError(ValueError):
    """A run folder that cannot be used as asked; one sentence that says what to do."""


class RunError(RuntimeError):
    """A run that could not go on: why, and what was saved."""


class Interrupted(KeyboardInterrupt):
    """A run that was told to stop, and did: the state is saved.

    Attributes:
      signal: SIGINT (Ctrl-C) or SIGTERM.
      step: the last step made.
    """

    def __init__(self, received: signal.Signals, step: int) -> None:
        self.signal, self.step = received, step
        super().__init__(f"stopped by {received.name} after step {step}")
