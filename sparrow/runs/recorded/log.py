"""`Log`: writes the numbers of a run to the terminal or a notebook, a file of JSON lines, and TensorBoard."""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TextIO

from sparrow.files import drop_output
from sparrow.processes import tell_progress
from sparrow.reports import METRICS
from sparrow.runs.recorded.tensorboard import Appended, EventFile, event_file_name
from sparrow.runs.saved.run_folder import WrittenFiles

TENSORBOARD: Final = "tensorboard"
UNDEFINED: Final = "undefined"
"""The field of a line with the reasons of metrics that are NaN, by name."""


class Log:
    """The log of a run. A context manager: leaving it closes files and the progress bar.

    With a model folder: ``metrics.jsonl`` holds everything, ``tensorboard/`` the curves. On a terminal and in a
    notebook there is a progress bar; elsewhere a line per report. A run continues when its output is closed.
    """

    def __init__(
        self,
        written: WrittenFiles | None = None,
        *,
        total: int | None = None,
        tensorboard: bool = True,
        stream: TextIO | None = None,
        done: int = 0,
        lengths: Mapping[str, int] = MappingProxyType({}),
        first: str | None = None,
    ) -> None:
        """Open the files.

        Args:
          written: the list of the run's files, which gets the files of the log; None: nothing is written.
          total: optimizer steps, where known.
          tensorboard: whether to write scalars for it.
          stream: the stream of lines; by default the standard output.
          done: steps that a run made before it was resumed.
          lengths: the result of `lengths` when that run was saved. Lines after it are cut off, except the
            last line of training of a run that had made all its steps.
          first: the metric that lines show after the loss: the one that chooses the best step.
        """
        self._written, self._first = written, first
        self._lines: Appended | None = None
        self._events: EventFile | None = None
        if written is not None:
            written.folder.mkdir(parents=True, exist_ok=True)
            last = _last_line(written.folder, lengths, done)
            _cut_off(written, lengths)
            self._lines = Appended(written.folder / METRICS)
            if tensorboard:
                name = f"{TENSORBOARD}/{event_file_name()}"
                written.add([name])
                self._events = EventFile(written.folder / name)
            if last is not None:
                self._keep("train", done, last)
        self._stream, self._is_read = stream, True
        self._bar = _bar(total, done) if stream is None and sys.stdout is not None else None
        self._total, self._made = total, done
        self._undefined: set[str] = set()  # metrics whose NaN has been logged

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._shown(self._bar.close)
        if self._lines is not None:
            self._lines.close()
        if self._events is not None:
            self._events.close()

    def advance(self) -> None:
        self._made += 1
        tell_progress(self._made)
        if self._bar is not None:
            self._shown(self._bar.advance)

    def report(
        self,
        kind: str,
        step: int,
        values: Mapping[str, float],
        histograms: Mapping[str, Any] | None = None,
        reasons: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Write numbers of a step.

        Args:
          kind: "train" or "eval".
          step: the step.
          values: the numbers by name.
          histograms: arrays, for TensorBoard alone.
          reasons: the reason of each metric that is NaN, for the file of JSON lines alone.
        """
        # JSON has no NaN: a metric that is not defined is null, with its reason in "undefined".
        plain: dict[str, Any] = {name: value if math.isfinite(value) else None for name, value in values.items()}
        if reasons:
            plain[UNDEFINED] = dict(reasons)
        self._keep(kind, step, {"time": round(time.time(), 3), **plain}, histograms)
        names, hidden = on_a_line(values, self._first)
        shown = "  ".join(f"{RATES.get(name, name)} {formatted(name, values[name])}" for name in names)
        if hidden:
            shown += f"  and {hidden} more" + (f" in {METRICS}" if self._lines is not None else "")
        if self._bar is not None and kind == "train":
            speed = f"{values['examples_per_second']:,.0f}/s  " if "examples_per_second" in values else ""
            show, text = self._bar.show, speed + shown.partition("  examples_per_second")[0]
            self._shown(lambda: show(text))
        else:
            of = f"/{self._total}" if self._total else ""
            self.line(f"{kind:5}  step {step}{of}  {shown}")

    def undefined(self, lines: Iterable[str]) -> None:
        """Write the reason of each metric that is NaN, once for each metric."""
        for line in lines:
            name = line.partition(" is NaN")[0]
            if name not in self._undefined:
                self._undefined.add(name)
                self.line(f"note   {line}")

    def lengths(self) -> dict[str, int]:
        """Return the lengths of the files, for a checkpoint: a resumed run appends from there."""
        if self._written is None:
            return {}
        folder = self._written.folder
        return {path.relative_to(folder).as_posix(): path.stat().st_size for path in _files(self._written)}

    def line(self, text: str) -> None:
        if self._bar is not None:
            bar = self._bar
            self._shown(lambda: bar.line(text))
        else:
            self._shown(lambda: print(text, file=self._stream or sys.stdout, flush=True))

    def _keep(
        self, kind: str, step: int, values: Mapping[str, Any], histograms: Mapping[str, Any] | None = None
    ) -> None:
        if self._lines is not None:
            self._lines.add((json.dumps({"kind": kind, "step": step, **values}) + "\n").encode())
        if self._events is not None:
            arrays = {f"{kind}/{name}": array for name, array in (histograms or {}).items()}
            own = {name: x for name, x in values.items() if name not in ("time", UNDEFINED)}
            scalars = {f"{kind}/{name}": math.nan if x is None else x for name, x in own.items()}
            self._events.write(step, scalars, arrays)

    def _shown(self, show: Callable[[], None]) -> None:
        """Write to the terminal or the pipe; where that is closed or full, end with one line on the standard error."""
        if not self._is_read:
            return
        try:
            show()
        except (OSError, ValueError) as error:  # ValueError: a file that was closed here
            self._is_read = False
            drop_output()
            where = "" if self._written is None else f"; the log continues in {self._written.folder / METRICS}"
            why = getattr(error, "strerror", None) or error
            with contextlib.suppress(OSError, ValueError):
                print(f"sparrow: nothing more is shown, the output cannot be written: {why}{where}", file=sys.stderr)


def _files(written: WrittenFiles) -> list[Path]:
    """Return the files of the log, without foreign files."""
    events = sorted((written.folder / TENSORBOARD).glob("*tfevents*"))
    own = [path for path in events if f"{TENSORBOARD}/{path.name}" in written]
    return [path for path in (written.folder / METRICS, *own) if path.is_file()]


def _cut_off(written: WrittenFiles, lengths: Mapping[str, int]) -> None:
    """Cut the files to the length that they had; remove newer files."""
    for path in _files(written):
        length = lengths.get(path.relative_to(written.folder).as_posix())
        if length is None:
            path.unlink()
        elif length < path.stat().st_size:
            os.truncate(path, length)


def _last_line(folder: Path, lengths: Mapping[str, int], step: int) -> dict[str, Any] | None:
    """Return the numbers of training after ``step``, where they were logged after its checkpoint was saved.

    A finished run has no step left that would log them again.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        with (folder / METRICS).open("rb") as file:
            file.seek(lengths[METRICS])
            lines = file.read().split(b"\n")[:-1]
        entries = [json.loads(line) for line in lines]
        for entry in entries:
            if entry.pop("kind") == "train" and entry.pop("step") == step:
                return dict(entry)
    return None


def formatted(name: str, value: float) -> str:
    """Return a number as people read it.

    >>> formatted("auc", 0.71239), formatted("examples_per_second", 123456.7), formatted("learning_rate/dense", 1e-5)
    ('0.7124', '123,457', '1e-05')
    """
    if name == "event_time":
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(value))
    return f"{value:,.0f}" if name in ("examples", "examples_per_second") else f"{value:.4g}"


RATES: Final = {"learning_rate/dense": "lr", "learning_rate/sparse": "sparse_lr"}
"""The learning rates that a line shows, and their names there."""


MOST: Final = 5
"""Metrics on a line, the loss included; ``metrics.jsonl`` and the report have all of them."""
OF_THE_RUN: Final = ("examples", "waiting_for_data", "cache_", "event_time", "late", "skipped", "loss_scale")
"""The beginnings of the names of numbers that are always shown."""


def _is_short(name: str) -> bool:
    """Return whether a number is shown on a line; norms by parameter, other rates and memory are for the report."""
    return name in RATES or (
        not name.startswith(("gradient_norm/", "learning_rate/", "coverage/", "unseen/"))
        and not name.endswith("_memory")
    )


def on_a_line(names: Iterable[str], first: str | None = None) -> tuple[list[str], int]:
    """Return the numbers that a line shows, at most `MOST` metrics among them, and how many metrics it does not show.

    >>> on_a_line(["loss", "auc", "ndcg", "mrr", "recall", "mae", "rmse", "examples_per_second"], "rmse")
    (['loss', 'rmse', 'auc', 'ndcg', 'mrr', 'examples_per_second'], 2)
    """
    short = [name for name in names if _is_short(name)]
    metrics = [name for name in short if not _is_of_the_run(name)]
    metrics.sort(key=lambda name: (name != "loss", name != first))
    rest = [name for name in short if _is_of_the_run(name)]
    return [*metrics[:MOST], *rest], len(metrics[MOST:])


def _is_of_the_run(name: str) -> bool:
    """Return whether a number is a rate, a speed, a time or a count, and no metric."""
    return name in RATES or name.startswith(OF_THE_RUN)


def _bar(total: int | None, done: int) -> _Bar | NotebookBar | None:
    """Return the progress bar of a terminal or a notebook; None elsewhere."""
    if sys.stdout.isatty():
        return _Bar(total, done)
    return NotebookBar(total, done) if is_notebook() else None


class _Bar:
    """A progress bar of rich."""

    def __init__(self, total: int | None, done: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.table import Column

        # The numbers get the space that is left: on a narrow terminal the last of them are cut, never the bar.
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

    def line(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._progress.stop()


INTERVAL: Final = 0.2
"""Seconds between two updates of the display."""


def is_notebook() -> bool:
    """Return whether this is the kernel of a notebook."""
    if "IPython" not in sys.modules:  # a notebook has always imported it
        return False
    shell: Any = importlib.import_module("IPython").get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class NotebookBar:
    """The progress of a run as an HTML bar; the interface of the bar on a terminal."""

    def __init__(self, total: int | None, done: int) -> None:
        display: Any = importlib.import_module("IPython.display")
        self._html, self._total, self._done, self._values = display.HTML, total, done, ""
        self._shown_at = self._began = time.monotonic()
        self._first = done
        self._display = display.display(self._html(self.html()), display_id=True)

    def advance(self) -> None:
        self._done += 1
        self._update()

    def show(self, values: str) -> None:
        self._values = values
        self._update(now=True)

    def line(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        self._update(now=True)

    def _update(self, now: bool = False) -> None:
        if now or time.monotonic() - self._shown_at >= INTERVAL:
            self._shown_at = time.monotonic()
            self._display.update(self._html(self.html()))

    def html(self) -> str:
        steps = f"{self._done:,}" if self._total is None else f"{self._done:,} of {self._total:,}"
        left = ""
        if self._total is not None and self._done > self._first:
            seconds = (time.monotonic() - self._began) / (self._done - self._first) * (self._total - self._done)
            left = f" · {max(seconds, 0):.0f} s left" if seconds >= 1 else ""
        bar = f'<progress value="{self._done}" max="{self._total or self._done or 1}"></progress>'
        return f"<div>{bar} {steps} steps{left} <small>{escape(self._values)}</small></div>"
