"""The configuration, versions and machine of a run; the differences between several runs, and `compare`, as text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from sparrow.reports.formatting import date, duration, precise
from sparrow.reports.learning import metric_names
from sparrow.reports.recorded import RecordedRun, read_all

MISSING = "—"
LONG = 20
"""A list of more values than this, such as a vocabulary, is shown by its number of values."""


def flat(values: Any, path: str = "") -> dict[str, str]:
    """Return the values of a config by path, as overrides write it.

    >>> flat({"train": {"steps": 5, "summaries": ["loss"]}})
    {'train.steps': '5', 'train.summaries[0]': 'loss'}
    """
    if isinstance(values, Mapping):
        found: dict[str, str] = {}
        for key, value in values.items():
            found |= flat(value, f"{path}.{key}" if path else str(key))
        return found
    if isinstance(values, list) and len(values) > LONG and not any(isinstance(value, Mapping) for value in values):
        return {path: f"{len(values):,} values, {values[0]} to {values[-1]}"}
    if isinstance(values, list):
        found = {}
        for index, value in enumerate(values):
            named = value.get("name") if isinstance(value, Mapping) else None
            found |= flat(value, f"{path}[{named if isinstance(named, str) else index}]")
        return found
    return {path: str(values)}


def differences(configs: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the fields in which configs differ, and the value of each; fields at their default are not in them.

    >>> differences([{"a": 1, "b": 2}, {"a": 1, "b": 3, "c": "x"}])
    {'b': ['2', '3'], 'c': ['—', 'x']}
    """
    flats = [flat(config) for config in configs]
    paths = dict.fromkeys(path for values in flats for path in values)
    found = {path: [values.get(path, MISSING) for values in flats] for path in paths}
    return {path: values for path, values in found.items() if len(set(values)) > 1}


def comparison_html(runs: Sequence[RecordedRun]) -> str:
    """Return two tables: the last numbers of each run, and the fields in which the configs differ."""
    held = compared(runs)
    numbers = {name: [MISSING if v is None else precise(v) for v in values] for name, values in held.numbers.items()}
    steps = {"last step": [f"{run.last_step:,}" for run in runs]}
    if any(run.best is not None for run in runs):
        steps["best step"] = [MISSING if run.best is None else f"{run.best.step:,}" for run in runs]
    title = "Numbers of the best step" if all(run.best is not None for run in runs) else "Last numbers"
    parts = [f"<h3>{title}</h3>", _table(runs, "number", {**steps, **numbers})]
    parts.append("<h3>Fields of the config that differ</h3>")
    parts.append(_table(runs, "field", held.fields) if held.fields else "<p>None: the configs are the same.</p>")
    return "".join(parts)


def final_values(run: RecordedRun) -> dict[str, float]:
    """Return the numbers of the best evaluation where the run knows one; else of `last_values`."""
    if run.best is None:
        return last_values(run)
    names = metric_names(run, "eval")
    return {name: value for name, value in run.best.values.items() if name in names}


def last_values(run: RecordedRun) -> dict[str, float]:
    """Return the numbers of the last evaluation; of the last line of training where there is none."""
    kind, entries = ("eval", run.evaluations) if run.evaluations else ("train", run.train)
    names = metric_names(run, kind)
    return {name: value for name, value in entries[-1].values.items() if name in names} if entries else {}


def config_html(runs: Sequence[RecordedRun]) -> str:
    """Return the configs, folded."""
    return "".join(
        f"<details><summary>{escape(run.name)} <small>config.yaml</small></summary>"
        f"<pre>{escape(run.config)}</pre></details>"
        for run in runs
        if run.config
    )


def environment_html(runs: Sequence[RecordedRun]) -> str:
    """Return versions, machine and dates, in a column per run."""
    facts = [environment_facts(run) for run in runs]
    names = dict.fromkeys(name for values in facts for name in values)
    return _table(runs, "", {name: [values.get(name, MISSING) for values in facts] for name in names})


def environment_facts(run: RecordedRun) -> dict[str, str]:
    """Return versions, machine and dates, in words."""
    held = run.environment
    facts: dict[str, str] = {}
    sessions = held.get("sessions", [])
    times = [entry.time for entry in (*run.train, *run.evaluations)]
    began = sessions[0].get("began") if sessions else run.began
    if began is not None and times:
        facts["began"] = date(began)
        facts["last line"] = f"{date(max(times))}, {duration(max(max(times) - began, 0.0))} later"
    if len(sessions) > 1:
        at = ", ".join(f"{session.get('step', 0):,}" for session in sessions[1:])
        facts["went on"] = f"{'once' if len(sessions) == 2 else f'{len(sessions) - 1} times'}, from step {at}"
    facts |= {str(name): str(value) for name, value in held.get("machine", {}).items()}
    facts |= {f"exchange of {stack}": str(text) for stack, text in held.get("exchange", {}).items()}
    facts |= {str(name): str(value) for name, value in held.get("versions", {}).items()}
    return facts


def _table(runs: Sequence[RecordedRun], corner: str, rows: Mapping[str, Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(run.name)}</th>' for run in runs)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(f"<td>{escape(value)}</td>" for value in values)}</tr>'
        for name, values in rows.items()
    )
    top = f"<thead><tr><th>{corner}</th>{head}</tr></thead>" if len(runs) > 1 else ""
    return f'<div class="scroll"><table class="facts">{top}<tbody>{body}</tbody></table></div>'


WIDTH: Final = 80
"""Columns of a terminal: runs that do not fit beside each other are shown below each other."""


def is_lower_better(name: str) -> bool:
    """Return whether a result is a loss or an error, by its name."""
    return any(word in name for word in ("loss", "error", "rmse", "mse", "mae", "entropy", "relative_l1"))


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
        lower = is_lower_better(number)

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
        across = [label, *(max(len(row[i]) for row in turned) for i in range(1, len(self.names) + 1))]
        if sum(across) + 2 * len(across) <= width:
            return "\n".join(_row(row, across) for row in turned)
        return "\n\n".join(
            "\n".join(f"{name:{label}}  {values[i]}" for name, values in columns.items())
            for i in range(len(self.names))
        )


def compare(folders: Sequence[str | Path]) -> Compared:
    """Read the best or last numbers of runs, and the fields in which their configs differ."""
    held = compared(read_all(folders))
    fields = {name: values for name, values in held.fields.items() if name != "model_dir"}
    return dataclasses.replace(held, fields=fields)


def compared(runs: Sequence[RecordedRun]) -> Compared:
    """Return the numbers and the differences of runs."""
    final = [final_values(run) for run in runs]
    names = dict.fromkeys(name for values in final for name in values)
    return Compared(
        [run.name for run in runs],
        [run.last_step for run in runs],
        {name: [values.get(name) for values in final] for name in names},
        differences([run.settings for run in runs]),
    )


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(cells, widths, strict=True)
    return "  ".join([f"{first[0]:{first[1]}}", *(f"{cell:>{width}}" for cell, width in rest)]).rstrip()
