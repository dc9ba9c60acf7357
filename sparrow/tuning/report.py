"""The report of a search: a table of trials, from the best to the worst."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from sparrow.files import replace_file

REPORT: Final = "report.md"
WORDS: Final = {"COMPLETE": "complete", "PRUNED": "stopped early", "FAIL": "failed"}


def write_report(folder: Path, trials: Sequence[Any], metric: str, mode: str) -> None:
    """Write the table of all trials that have ended."""
    ended = [t for t in trials if t.state.name in WORDS and "requeued" not in t.user_attrs]
    fields = list(dict.fromkeys(field for trial in ended for field in trial.params))
    ended.sort(key=lambda trial: _order(trial, mode))
    better = "lower" if mode == "min" else "higher"
    early = sum(trial.state.name == "PRUNED" for trial in ended)
    lines = [
        "# Trials",
        "",
        f"{len(ended)} trials by `{metric}` ({better} is better), {early} stopped early.",
        "",
        "| " + " | ".join(["run", metric, "end", "last step", *(f"`{field}`" for field in fields)]) + " |",
        "|---" * (4 + len(fields)) + "|",
    ]
    for trial in ended:
        value = _value(trial)
        steps = max(trial.intermediate_values, default=None)
        cells = [trial.user_attrs.get("folder", ""), "" if value is None else f"{value:.6g}", WORDS[trial.state.name]]
        cells += ["" if steps is None else f"{steps}"]
        cells += [_shown(trial.params.get(field, "")) for field in fields]
        lines.append("| " + " | ".join(cells) + " |")
    if influence := _influence(ended, fields):
        lines += ["", "Correlation of ranks of each number with the result, over the complete trials:", ""]
        lines += [f"- `{field}`: {value:+.2f}" for field, value in influence]
    replace_file(folder / REPORT, ("\n".join(lines) + "\n").encode(), durable=False)


def _value(trial: Any) -> float | None:
    if trial.value is not None:
        return float(trial.value)
    held = trial.intermediate_values
    return float(held[max(held)]) if held else None


def _order(trial: Any, mode: str) -> tuple[int, float]:
    value = _value(trial)
    rank = list(WORDS).index(trial.state.name)
    return rank, 0.0 if value is None else (value if mode == "min" else -value)


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def _influence(trials: Sequence[Any], fields: Sequence[str]) -> list[tuple[str, float]]:
    """Return the rank correlation of each numeric field with the result, the strongest first."""
    import numpy as np

    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    found = []
    for field in fields:
        values = [trial.params.get(field) for trial in complete]
        if len(complete) < 5 or not all(isinstance(value, int | float) for value in values):
            continue
        by_field, by_result = (np.argsort(np.argsort(held)) for held in (values, [trial.value for trial in complete]))
        if len(set(values)) > 1:
            found.append((field, float(np.corrcoef(by_field, by_result)[0, 1])))
    return sorted(found, key=lambda pair: -abs(pair[1]))
