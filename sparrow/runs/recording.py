"""`Recorder`: what a run leaves for its report beside the log: curves, traffic, versions; and the report itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparrow.data import DataError
from sparrow.embedding import Embedder
from sparrow.reports import CURVES, TRAFFIC, write_json, write_report
from sparrow.runs.environment import Environment
from sparrow.runs.traffic import Traffic


class Recorder:
    """Writes the files of one run folder. None of them is worth a run: what cannot be written is said, once."""

    def __init__(self, folder: Path, embedder: Embedder, traffic: Traffic | None, say: Callable[[str], None]) -> None:
        self._folder, self._embedder, self._traffic, self._say = folder, embedder, traffic, say
        self._environment: Environment | None = None
        self._failed = False

    def begin(self, step: int) -> None:
        """Work begins at ``step``."""
        self._environment = self._tried(lambda: Environment(self._folder, self._embedder, step))

    def evaluated(self, step: int, curves: dict[str, Any]) -> None:
        """An evaluation was made."""
        self._tried(lambda: write_json(self._folder / CURVES, {"step": step, "tasks": curves}))

    def end(self, how: str) -> None:
        """Work ended: "finished", "stopped early", "interrupted". Writes the report."""
        environment, traffic = self._environment, self._traffic
        if environment is not None:
            self._tried(lambda: environment.end(how))
        if traffic is not None:
            self._tried(lambda: write_json(self._folder / TRAFFIC, traffic.summary()))
        path = self._tried(lambda: write_report([self._folder]))
        if path is not None:
            self._say(f"report {path}")

    def _tried(self, write: Callable[[], Any]) -> Any:
        try:
            return write()
        except (OSError, DataError) as error:
            if not self._failed:
                self._say(f"the report is incomplete: {error}")
            self._failed = True
            return None
