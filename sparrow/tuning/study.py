"""`tune`: trains a config with different values of some fields, stops bad trials early, and writes a report."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from sparrow import config as configs
from sparrow import runs
from sparrow.errors import ConfigError, Problem
from sparrow.files import replace_file
from sparrow.reports import is_lower_better

_RANGE: Final = re.compile(r"(?P<low>[^.|]+(?:\.\d+)?(?:e[+-]?\d+)?)\.\.(?P<high>[^|:]+)(?P<log>:log)?")
FORM: Final = "LOW..HIGH, LOW..HIGH:log, or A|B|C"


@dataclasses.dataclass(frozen=True)
class Searched:
    """A field to search.

    Attributes:
      field: the field, as overrides write it.
      choices: its values; empty for a range.
      low: the smallest number of a range.
      high: the largest number of a range.
      log: whether the range is searched by the logarithm.
    """

    field: str
    choices: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @property
    def first(self) -> str:
        """The override with the first value."""
        return f"{self.field}={self.choices[0] if self.choices else self.low}"

    def suggest(self, trial: Any) -> str:
        if self.choices:
            return f"{self.field}={trial.suggest_categorical(self.field, list(self.choices))}"
        if isinstance(self.low, int) and isinstance(self.high, int):
            return f"{self.field}={trial.suggest_int(self.field, self.low, self.high, log=self.log)}"
        return f"{self.field}={trial.suggest_float(self.field, self.low, self.high, log=self.log):.6g}"


def searched(text: str) -> Searched | None:
    """Return the field and the values of ``FIELD=VALUES``; None for an override with one value.

    >>> searched("train.dense_optimizer.learning_rate=1e-4..1e-2:log")
    Searched(field='train.dense_optimizer.learning_rate', choices=(), low=0.0001, high=0.01, log=True)
    >>> searched("train.batch_size=512|2048").choices
    ('512', '2048')
    >>> searched("model.architecture.num_experts=2..8").high
    8
    >>> searched("train.epochs=1"), searched("data.train.path=../clicks.parquet")
    (None, None)
    """
    field, equals, values = text.partition("=")
    if not equals:
        return None
    if "|" in values:
        choices = tuple(values.split("|"))
        if not all(choices) or len(set(choices)) < len(choices):
            raise ConfigError([Problem((field,), f"choices must be different and not empty, got {values!r}")])
        return Searched(field, choices)
    found = _RANGE.fullmatch(values)
    if found is None:
        return None
    try:
        low, high = _number(found["low"]), _number(found["high"])
    except ValueError:
        return None  # such as a path
    if not low < high or (found["log"] and low <= 0):
        raise ConfigError([Problem((field,), f"LOW must be below HIGH, and above 0 with :log, got {values!r}")])
    return Searched(field, (), low, high, found["log"] is not None)


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)


JOURNAL: Final = "study.log"
REPORT: Final = "report.md"
FOLDER: Final = "folder"
STARTUP_TRIALS: Final = 4
"""Trials that are never stopped early; later ones are compared with them."""

Mode = Literal["min", "max"]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The result of a search: the best value, the overrides that gave it, and the folder of its run."""

    value: float
    overrides: list[str]
    folder: Path


def tune(
    load: Callable[[Sequence[str]], configs.Config],
    folder: str | Path,
    space: Sequence[Searched],
    *,
    trials: int = 20,
    metric: str | None = None,
    mode: Mode | None = None,
    seed: int = 0,
    log: Callable[[str], None] = print,
) -> Tuned:
    """Search the fields of ``space``, and write a report. A search that was stopped goes on where it was.

    Args:
      load: returns the config with some overrides.
      folder: the folder of the search: its journal, a run for each trial, ``report.md`` and ``best.yaml``.
      space: the fields to search.
      trials: the number of trials, those before a stop included.
      metric: the result to improve; by default the one of early stopping or of the best checkpoint, or the loss.
      mode: whether the metric is better when it is lower or higher; by default by its name.
      seed: the seed of the search.
      log: receives a line for each trial.
    """
    import optuna

    if not space:
        raise ConfigError([Problem((), f"there is no field to search; add FIELD=VALUES, where VALUES is {FORM}")])
    base = load([searched.first for searched in space])  # refuses an unknown field before the first trial
    watched = base.evaluate.early_stopping or base.train.checkpoint.best_by
    metric = metric or ("loss" if watched is None else watched.metric)
    mode = mode or ("min" if is_lower_better(metric) else "max")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if base.evaluate.every_steps is None and base.evaluate.every_epochs is None:
        log("no trial is stopped early, because there is no evaluation to compare by; set evaluate.every_steps")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    from optuna.storages.journal import JournalFileBackend

    study = optuna.create_study(
        study_name="tune",
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / JOURNAL))),
        sampler=optuna.samplers.TPESampler(seed=seed),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP_TRIALS),
        direction="minimize" if mode == "min" else "maximize",
        load_if_exists=True,
    )
    _check_same(study, [searched.field for searched in space], metric, folder)
    _requeue(study, log)
    search = _Search(study, load, folder, space, metric, log)
    while len(done := _ended(study)) < trials:
        search.run(study.ask(), f"{len(done) + 1}/{trials}")
        write_report(folder, study.get_trials(deepcopy=False), metric, mode)
    return search.best()


@dataclasses.dataclass(frozen=True)
class _Search:
    """A study of Optuna, and the arguments of `tune` for its trials."""

    study: Any
    load: Callable[[Sequence[str]], configs.Config]
    folder: Path
    space: Sequence[Searched]
    metric: str
    log: Callable[[str], None]

    def run(self, trial: Any, count: str) -> None:
        """Train one trial, and record its end."""
        from optuna.trial import TrialState

        overrides = [searched.suggest(trial) for searched in self.space]
        at = trial.user_attrs.get(FOLDER, f"trials/{trial.number:04}")
        trial.set_user_attr(FOLDER, at)
        is_pruned = False

        def watch(step: int, results: Mapping[str, float]) -> bool:
            nonlocal is_pruned
            if self.metric not in results:
                text = f"there is no metric '{self.metric}': valid names: {', '.join(results)}"
                raise ConfigError([Problem((), text)])
            if math.isfinite(results[self.metric]):
                trial.report(results[self.metric], step)
            is_pruned = bool(trial.should_prune())
            return is_pruned

        path = self.folder / at
        is_begun = (path / "checkpoints").is_dir() and any((path / "checkpoints").iterdir())
        problem, value = "", math.nan
        try:
            with open(os.devnull, "w") as stream:
                how: dict[str, Any] = {"resume": is_begun, "overwrite": not is_begun, "stream": stream, "watch": watch}
                trained = runs.train(self.load(overrides), path, **how)
        except runs.RunError as error:
            problem = str(error).splitlines()[0]
        else:
            value = trained.results.get(self.metric, math.nan)
            problem = "" if math.isfinite(value) else f"{self.metric} is {value}"
        if problem:
            self.study.tell(trial, state=TrialState.FAIL)
            self.log(f"trial {count}  failed: {problem}  {' '.join(overrides)}")
            return
        if is_pruned:
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            self.study.tell(trial, value)
        ending = f"stopped early at step {trained.steps}" if is_pruned else f"step {trained.steps}"
        self.log(f"trial {count}  {self.metric} {value:.5g}  {ending}  {' '.join(overrides)}")

    def best(self) -> Tuned:
        """Return the best trial, and write its config."""
        from optuna.trial import FixedTrial, TrialState

        if not self.study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            raise runs.RunError(f"no trial ended with a result; {self.folder / REPORT} lists them")
        best = self.study.best_trial
        overrides = [searched.suggest(FixedTrial(best.params)) for searched in self.space]
        (self.folder / "best.yaml").write_text(configs.dumps(self.load(overrides)), encoding="utf-8")
        self.log(f"best   {self.metric} {best.value:.5g}  {' '.join(overrides)}")
        self.log(f"report {self.folder / REPORT}, config {self.folder / 'best.yaml'}")
        return Tuned(float(best.value), overrides, self.folder / best.user_attrs[FOLDER])


def _ended(study: Any) -> list[Any]:
    from optuna.trial import TrialState

    states = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    return [trial for trial in study.get_trials(deepcopy=False, states=states) if "requeued" not in trial.user_attrs]


def _requeue(study: Any, log: Callable[[str], None]) -> None:
    """Queue interrupted trials again, to go on from their last checkpoint."""
    from optuna.trial import TrialState

    for trial in study.get_trials(states=(TrialState.RUNNING,)):
        study._storage.set_trial_user_attr(trial._trial_id, "requeued", True)
        study.tell(trial.number, state=TrialState.FAIL)
        if trial.params:
            kept = {FOLDER: trial.user_attrs[FOLDER]} if FOLDER in trial.user_attrs else {}
            study.enqueue_trial(trial.params, user_attrs=kept)
            log(f"trial {trial.number} was interrupted; it continues")


def _check_same(study: Any, fields: list[str], metric: str, folder: Path) -> None:
    facts = {"fields": fields, "metric": metric}
    if not study.user_attrs:
        for name, value in facts.items():
            study.set_user_attr(name, value)
    elif study.user_attrs != facts:
        problem = f"{folder} holds a search of other fields or by another metric; choose another folder"
        raise ConfigError([Problem((), problem)])


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
        cells = [trial.user_attrs.get(FOLDER, ""), "" if value is None else f"{value:.6g}", WORDS[trial.state.name]]
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
