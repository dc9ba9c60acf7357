"""`RecordedRun`: the files of a run folder, read for the report.

=====================  ===============================================================================================
``metrics.jsonl``      the numbers of training and evaluation, a line each
``config.yaml``        the config
``curves.json``        counts of the last and of the best evaluation, for the charts of the quality of predictions
``traffic.json``       lookups by row of the tables
``environment.json``   versions, machine, sizes, epochs, dates and times
=====================  ===============================================================================================

Only the first is required: the report of an unfinished run shows the files that exist.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from sparrow.errors import DataError
from sparrow.files import AnyPath, at, replace_file, text_of

METRICS: Final = "metrics.jsonl"
CONFIG: Final = "config.yaml"
CURVES: Final = "curves.json"
TRAFFIC: Final = "traffic.json"
ENVIRONMENT: Final = "environment.json"
REPORT: Final = "report.html"


class Entry(NamedTuple):
    """The numbers of one step; NaN where a metric is not defined."""

    step: int
    time: float
    values: dict[str, float]


class Criterion(NamedTuple):
    """The number that chooses the best evaluation, and whether it is best when it is highest."""

    metric: str
    is_max: bool


class Points(NamedTuple):
    """One number over the steps."""

    steps: list[int]
    times: list[float]
    values: list[float]


@dataclasses.dataclass(frozen=True)
class RecordedRun:
    """A run, read from its folder.

    Attributes:
      name: its name in the report.
      folder: where it is.
      train, evaluations, windows: its numbers, by step.
      config: the text of its config; empty where there is none.
      curves, traffic, environment: as in their files; empty where there is none.
    """

    name: str
    folder: AnyPath
    train: tuple[Entry, ...]
    evaluations: tuple[Entry, ...]
    config: str
    curves: dict[str, Any]
    traffic: dict[str, Any]
    environment: dict[str, Any]
    windows: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, folder: str | AnyPath, name: str | None = None) -> RecordedRun:
        """Read a folder; one that holds no run, or a damaged file, is a `DataError`."""
        folder = at(folder)
        if not (os.path.isdir(folder) if isinstance(folder, Path) else folder.is_dir()):
            raise DataError("there is no such folder", str(folder))
        by_kind = _read_metrics(folder / METRICS)
        config = folder / CONFIG
        return cls(
            name=name or (Path(os.path.realpath(folder)) if isinstance(folder, Path) else folder).name,
            folder=folder,
            train=tuple(by_kind["train"]),
            evaluations=tuple(by_kind["eval"]),
            config=text_of(config, DataError) if config.is_file() else "",
            curves=_read_json(folder / CURVES),
            traffic=_read_json(folder / TRAFFIC),
            environment=_read_json(folder / ENVIRONMENT),
            windows=tuple(by_kind["window"]),
        )

    def points(self, kind: str, name: str) -> Points:
        """Return one number over the steps of training ("train") or of the evaluations ("eval")."""
        entries = [entry for entry in self._of(kind) if name in entry.values]
        return Points(
            [entry.step for entry in entries],
            [entry.time for entry in entries],
            [entry.values[name] for entry in entries],
        )

    def _of(self, kind: str) -> tuple[Entry, ...]:
        return {"train": self.train, "eval": self.evaluations, "window": self.windows}[kind]

    def names(self, kind: str) -> list[str]:
        """Return the names of the numbers in its lines, in the order of their first use."""
        entries = self._of(kind)
        return list(dict.fromkeys(name for entry in entries for name in entry.values))

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """The config as plain values; empty where it cannot be read."""
        try:
            held = yaml.safe_load(self.config)
        except yaml.YAMLError:
            return {}
        return held if isinstance(held, dict) else {}

    @property
    def criterion(self) -> Criterion | None:
        """The criterion of the best evaluation: of checkpoints, or else of early stopping; None: there is none."""
        for path in (("train", "checkpoint", "best_by"), ("evaluate", "early_stopping")):
            held: Any = self.settings
            for name in path:
                held = held.get(name) if isinstance(held, dict) else None
            if isinstance(held, dict) and isinstance(held.get("metric"), str):
                return Criterion(held["metric"], held.get("mode") == "max")
        return None

    @functools.cached_property
    def best(self) -> Entry | None:
        """The best evaluation by the criterion, the earliest of equal ones; None: there is none."""
        criterion = self.criterion
        if criterion is None:
            return None
        entries = [e for e in self.evaluations if math.isfinite(e.values.get(criterion.metric, math.nan))]
        sign = 1 if criterion.is_max else -1
        return max(entries, key=lambda entry: sign * entry.values[criterion.metric], default=None)

    @property
    def epoch_ends(self) -> list[int]:
        """The last step of each epoch that has ended."""
        held = self.environment.get("epoch_ends", [])
        return [end for end in held if isinstance(end, int)] if isinstance(held, list) else []

    def epoch_at(self, step: int) -> float | None:
        """Return the epochs that were made after a step, such as 1.5; None: not known.

        The epoch that has not ended is taken to be as long as the one before it.
        """
        ends = self.epoch_ends
        if not ends:
            return None
        done = bisect.bisect_right(ends, step)
        first = ends[done - 1] if done else 0
        length = ends[done] - first if done < len(ends) else ends[-1] - (ends[-2] if len(ends) > 1 else 0)
        return done + (step - first) / max(length, 1)

    @property
    def shown_curves(self) -> dict[str, Any]:
        """The curves of the best evaluation where they are known, else of the last one."""
        best = self.curves.get("best")
        return best if isinstance(best, dict) else self.curves

    @property
    def began(self) -> float | None:
        """The time of its first line, in seconds since 1970."""
        times = [entry.time for entry in (*self.train[:1], *self.evaluations[:1])]
        return min(times, default=None)

    @property
    def last_step(self) -> int:
        return max((entry.step for entry in (*self.train[-1:], *self.evaluations[-1:])), default=0)


def read_all(folders: Sequence[str | AnyPath]) -> list[RecordedRun]:
    """Return several runs, with names that differ.

    >>> _names([Path("runs/a/first"), Path("runs/b/first")])
    ['a/first', 'b/first']
    """
    paths = [at(folder) for folder in folders]
    resolved = [Path(os.path.realpath(path) if isinstance(path, Path) else str(path)) for path in paths]
    for path, place in zip(paths, resolved, strict=True):
        if resolved.count(place) > 1:
            raise DataError("is given twice; name each run once", str(path))
    return [RecordedRun.read(path, name) for path, name in zip(paths, _names(resolved), strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """Return the shortest ends of the paths that differ."""
    for length in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-length:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _read_metrics(path: AnyPath) -> dict[str, list[Entry]]:
    if not path.is_file():
        raise DataError(f"there is no run: the file {METRICS} is missing", str(path.parent))
    entries: dict[str, list[Entry]] = {"train": [], "eval": [], "window": []}
    lines = text_of(path, DataError).split("\n")
    for number, line in enumerate(lines, 1):
        is_last = number == len(lines)  # no newline after it: the run was stopped, or is about to write the rest
        if not line.strip():
            continue
        try:
            kind, entry = _entry(line)
        except (ValueError, TypeError, KeyError, AttributeError):
            if is_last:
                continue
            raise DataError("is not a line of metrics; repair or remove it", str(path), f"line {number}") from None
        if kind in entries:
            of_kind = entries[kind]
            while of_kind and of_kind[-1].step >= entry.step:  # a run that went on from a checkpoint before it
                of_kind.pop()
            of_kind.append(entry)
    if not entries["train"] and not entries["eval"]:
        raise DataError("holds no numbers yet; train some steps first", str(path))
    return entries


def _entry(line: str) -> tuple[str, Entry]:
    held = json.loads(line)
    kind, step, time = held.pop("kind"), int(held.pop("step")), float(held.pop("time"))
    values = {
        str(name): math.nan if value is None else float(value)
        for name, value in held.items()
        if value is None or isinstance(value, int | float)
    }
    return str(kind), Entry(step, time, values)


def _read_json(path: AnyPath) -> dict[str, Any]:
    if not path.is_file():
        return {}
    text = text_of(path, DataError)
    try:
        held = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON: {error}; remove it to leave that part of the report out", str(path)) from None
    if not isinstance(held, dict):
        raise DataError("must hold a JSON object; remove it to leave that part of the report out", str(path))
    return held


def write_json(path: AnyPath, values: Any) -> None:
    """Write a JSON file, which holds the old values or the new ones, never a part."""
    replace_file(path, json.dumps(values).encode(), durable=False)
