"""`Log`: where the numbers of a run go: the terminal, a file of JSON lines, TensorBoard."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TextIO

from sparrow.runs.recorded.tensorboard import EventFile

METRICS: Final = "metrics.jsonl"
TENSORBOARD: Final = "tensorboard"


class Log:
    """Shows and keeps what a run reports. A context manager: leaving it closes files and the progress bar.

    With a model folder: ``metrics.jsonl`` holds everything, ``tensorboard/`` the curves. On a terminal there is a
    progress bar; elsewhere a line per report.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        total: int | None = None,
        tensorboard: bool = True,
        stream: TextIO | None = None,
        done: int = 0,
        lengths: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Opens the files.

        Args:
          folder: of the run; None: nothing is kept.
          total: optimizer steps, where known.
          tensorboard: whether to write scalars for it.
          stream: where lines go; the standard output unless given.
          done: steps that a run made before it was resumed.
          lengths: what `lengths` gave when that run was saved; what was written afterwards is cut off.
        """
        self._folder = folder
        self._lines: TextIO | None = None
        self._events: EventFile | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            _cut_off(folder, lengths)
            self._lines = (folder / METRICS).open("a", encoding="utf-8")
            self._events = EventFile(folder / TENSORBOARD) if tensorboard else None
        self._stream = stream
        self._bar = _Bar(total, done) if stream is None and sys.stdout.isatty() else None
        self._total = total

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.close()
        if self._lines is not None:
            self._lines.close()
        if self._events is not None:
            self._events.close()

    def advance(self) -> None:
        """One more step was started."""
        if self._bar is not None:
            self._bar.advance()

    def report(
        self, kind: str, step: int, values: Mapping[str, float], histograms: Mapping[str, Any] | None = None
    ) -> None:
        """Numbers of a step: ``kind`` is "train" or "eval". ``histograms`` are arrays, for TensorBoard alone."""
        if self._lines is not None:
            # JSON has no NaN: a metric that is not defined is null.
            plain = {name: value if math.isfinite(value) else None for name, value in values.items()}
            entry = {"kind": kind, "step": step, "time": round(time.time(), 3), **plain}
            self._lines.write(json.dumps(entry) + "\n")
            self._lines.flush()
        if self._events is not None:
            arrays = {f"{kind}/{name}": array for name, array in (histograms or {}).items()}
            self._events.write(step, {f"{kind}/{name}": value for name, value in values.items()}, arrays)
        shown = "  ".join(f"{name} {formatted(name, value)}" for name, value in values.items() if _is_short(name))
        if self._bar is not None and kind == "train":
            speed = f"{values['examples_per_second']:,.0f}/s  " if "examples_per_second" in values else ""
            self._bar.show(speed + shown.partition("  examples_per_second")[0])
        else:
            of = f"/{self._total}" if self._total else ""
            self.say(f"{kind:5}  step {step}{of}  {shown}")

    def lengths(self) -> dict[str, int]:
        """How long the files are, for a checkpoint: a run that is resumed writes on from there."""
        if self._folder is None:
            return {}
        return {path.relative_to(self._folder).as_posix(): path.stat().st_size for path in _files(self._folder)}

    def say(self, text: str) -> None:
        """One line."""
        if self._bar is not None:
            self._bar.say(text)
        else:
            print(text, file=self._stream or sys.stdout, flush=True)


def _files(folder: Path) -> list[Path]:
    return [path for path in (folder / METRICS, *sorted((folder / TENSORBOARD).glob("*tfevents*"))) if path.is_file()]


def _cut_off(folder: Path, lengths: Mapping[str, int]) -> None:
    """Makes the files as long as they were; those that were not there yet are removed."""
    for path in _files(folder):
        length = lengths.get(path.relative_to(folder).as_posix())
        if length is None:
            path.unlink()
        elif length < path.stat().st_size:
            os.truncate(path, length)


def formatted(name: str, value: float) -> str:
    """A number as people read it.

    >>> formatted("auc", 0.71239), formatted("examples_per_second", 123456.7), formatted("learning_rate/dense", 1e-5)
    ('0.7124', '123,457', '1e-05')
    """
    return f"{value:,.0f}" if name == "examples_per_second" else f"{value:.4g}"


def _is_short(name: str) -> bool:
    """Whether a number is worth its place on a line; norms by parameter and memory are for the report."""
    return not name.startswith(("gradient_norm/", "learning_rate/")) and not name.endswith("_memory")


class _Bar:
    """A progress bar of rich."""

    def __init__(self, total: int | None, done: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        # The numbers get the room that is left: on a narrow terminal the last of them are cut, never the bar.
        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        values = TextColumn("{task.fields[values]}", table_column=rest)
        columns = (TextColumn("train"), BarColumn(12), MofNCompleteColumn(), TimeRemainingColumn(), values)
        self._progress = Progress(*columns, expand=True)
        self._task = self._progress.add_task("", total=total, completed=done, values="")
        self._progress.start()

    def advance(self) -> None:
        self._progress.advance(self._task)

    def show(self, values: str) -> None:
        self._progress.update(self._task, values=values)

    def say(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._progress.stop()
