"""`compare`: several runs side by side, as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sparrow.reports.facts import MISSING, differences, final_values
from sparrow.reports.recorded import read_all

WIDTH: Final = 80
"""Columns of a terminal: runs that do not fit beside each other are shown below each other."""

LOWER_IS_BETTER: Final = ("loss", "error", "rmse", "mse", "mae", "entropy")


@dataclasses.dataclass(frozen=True)
class Compared:
    """Runs beside each other.

    Attributes:
      names: the runs.
      steps: the last step of each.
      numbers: the results of the best evaluation, or the last, by name, one for each run; None where a run has none.
      fields: the fields in which their configs differ.
    """

    names: list[str]
    steps: list[int]
    numbers: Mapping[str, list[float | None]]
    fields: Mapping[str, list[str]]

    def sorted_by(self, number: str) -> Compared:
        """Return the runs from the best to the worst; losses and errors are better when they are lower."""
        lower = any(word in number for word in LOWER_IS_BETTER)

        def key(index: int) -> float:
            value = self.numbers[number][index]
            if value is None or math.isnan(value):
                return math.inf
            return value if lower else -value

        order = sorted(range(len(self.names)), key=key)
        return Compared(
            [self.names[i] for i in order],
            [self.steps[i] for i in order],
            {name: [values[i] for i in order] for name, values in self.numbers.items()},
            {name: [values[i] for i in order] for name, values in self.fields.items()},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, by run."""
        return {
            run: {
                "last_step": self.steps[i],
                "numbers": {name: values[i] for name, values in self.numbers.items()},
                "fields": {name: values[i] for name, values in self.fields.items()},
            }
            for i, run in enumerate(self.names)
        }

    def text(self, width: int = WIDTH) -> str:
        """Return a table of at most ``width``: a row or a column for each run, or a block where neither fits."""
        columns: dict[str, list[str]] = {"run": self.names, "step": [f"{step:,}" for step in self.steps]}
        for name, values in self.numbers.items():
            columns[name] = [MISSING if value is None else f"{value:.4g}" for value in values]
        columns |= {name.rpartition("train.")[2]: values for name, values in self.fields.items()}
        widths = {name: max(map(len, (name, *values))) for name, values in columns.items()}
        if sum(widths.values()) + 2 * len(widths) <= width:
            rows = [list(columns), *zip(*columns.values(), strict=True)]
            return "\n".join(_row(row, list(widths.values())) for row in rows)
        label = max(map(len, columns))
        turned = [[name, *values] for name, values in columns.items()]
        room = [label, *(max(len(row[i]) for row in turned) for i in range(1, len(self.names) + 1))]
        if sum(room) + 2 * len(room) <= width:
            return "\n".join(_row(row, room) for row in turned)
        return "\n\n".join(
            "\n".join(f"{name:{label}}  {values[i]}" for name, values in columns.items())
            for i in range(len(self.names))
        )


def compare(folders: Sequence[str | Path]) -> Compared:
    """Read the best or last numbers of runs, and the fields in which their configs differ."""
    runs = read_all(folders)
    final = [final_values(run) for run in runs]
    names = dict.fromkeys(name for values in final for name in values)
    differing = differences([run.settings for run in runs])
    return Compared(
        [run.name for run in runs],
        [run.last_step for run in runs],
        {name: [values.get(name) for values in final] for name in names},
        {name: values for name, values in differing.items() if name != "model_dir"},
    )


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return "  ".join([f"{first[0]:{first[1]}}", *(f"{cell:>{width}}" for cell, width in rest)]).rstrip()
