"""`SingleWriter`: checkpoints written by one process, through Orbax."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from sparrow.checkpoint.content import StateSave
from sparrow.checkpoint.errors import CheckpointError


class SingleWriter:
    """Writer with the methods that `Checkpoints` calls. The first save imports Orbax, which takes a while."""

    def __init__(self) -> None:
        """Look for Orbax, so that a run without it ends before it trains."""
        if importlib.util.find_spec("orbax") is None or importlib.util.find_spec("orbax.checkpoint") is None:
            raise CheckpointError("checkpoints need the package orbax-checkpoint: pip install orbax-checkpoint")
        self._orbax: Any = None

    def save(self, path: Path, args: StateSave) -> None:
        """Write large tables and copy small ones; everything else happens in the background."""
        from sparrow.checkpoint.handler import SaveArgs, checkpointer

        if self._orbax is None:
            self._orbax = checkpointer()
        self._orbax.save(path, args=SaveArgs(args))

    def wait_until_finished(self) -> None:
        """Wait until the checkpoint has its name, or raise the reason why it has none."""
        if self._orbax is not None:
            self._orbax.wait_until_finished()

    def check_for_errors(self) -> None:
        """Raise the error of the background thread, if there is one by now."""
        if self._orbax is not None:
            self._orbax.check_for_errors()

    def close(self) -> None:
        """Wait, and end the background threads."""
        if self._orbax is not None:
            self._orbax.close()
