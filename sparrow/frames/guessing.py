"""`guess`: the config that a frame stands for, with every guess in sight."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, Literal

from sparrow import config as configs
from sparrow import fields
from sparrow.config import Config, ConfigError
from sparrow.data import Feature
from sparrow.data.features import registry as feature_kinds
from sparrow.files import replace_file
from sparrow.frames.columns import KINDS, Kind, Reading, in_buckets, read_column
from sparrow.frames.given import Given, given_rows
from sparrow.frames.labels import METRICS, MODES, Target, read_target
from sparrow.frames.models import has_wide_tables, items_of, model_section, user_of, without_clashes
from sparrow.frames.settings import PATIENCE, RANKING, TWO_TOWERS, batch_size_of
from sparrow.losses import registry as losses
from sparrow.registry import answering, nearest

RANKED: Final = 10**10
"""Two towers of at most this many rows times items stop by their ranks among all items, others by the loss."""

REASONS: Final = 5
"""Columns that an error names."""

LEFT: Final = 'style="text-align: left"'
"""Cells of words in a notebook, which would put them to the right."""

FeatureGuess = Kind | Mapping[str, Any] | Feature | None


@dataclasses.dataclass(frozen=True)
class Guess:
    """The config of a frame, and how it came about. `guess` makes it; printing it shows each column.

    Attributes:
      config: the config, to train with `sparrow.runs.train`.
      targets: the target columns.
      readings: the other columns.
      notes: further sentences.
    """

    config: Config
    targets: tuple[Target, ...]
    readings: tuple[Reading, ...]
    notes: tuple[str, ...] = ()

    def yaml(self) -> str:
        """Return the config as YAML; data in memory is named, not written."""
        return configs.dumps(self.config)

    def save(self, path: str | Path) -> None:
        """Write the config to a YAML file."""
        replace_file(Path(path), self.yaml().encode())

    def lines(self) -> list[str]:
        """Return a line for each column, and the notes."""
        rows = [(target.column, "", f"target: {target.words}") for target in self.targets]
        rows += [(reading.column, reading.kind, reading.words) for reading in self.readings]
        widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
        lines = [f"{name:{widths[0]}}  {kind:{widths[1]}}  {words}" for name, kind, words in rows]
        return [*lines, *self.notes]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        rows = [(target.column, "", f"target: {target.words}") for target in self.targets]
        rows += [(reading.column, reading.kind, reading.words) for reading in self.readings]
        body = "".join(f"<tr>{''.join(f'<td {LEFT}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        head = "".join(f"<th {LEFT}>{name}</th>" for name in ("column", "type", "read as"))
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><tr>{head}</tr>{body}</table>{notes}"


@answering
def guess(
    data: Any,
    target: str | Sequence[str] | None = None,
    model: str | Mapping[str, Any] | None = None,
    *,
    evaluate: Any = 0.1,
    evaluate_by: str | None = None,
    features: Mapping[str, FeatureGuess] | None = None,
    user: str | Sequence[str] = (),
    item: str | Sequence[str] = (),
    groups: Mapping[str, Sequence[str]] | None = None,
    loss: str | Mapping[str, str] | None = None,
    weight: str | None = None,
    embedding_dim: int | None = None,
    epochs: int = 20,
    batch_size: int | None = None,
    seed: int = 0,
    overrides: Sequence[str] = (),
) -> Guess:
    """Return the config that `fit` would train, without training.

    >>> frame = {"user_id": [0, 1, 2, 3], "age": [20.5, 31.0, 47.5, 18.0], "click": [1, 0, 1, 0]}
    >>> guess(frame, target="click", evaluate=None)
    click            target: yes or no, by binary_cross_entropy
    user_id  int64   ids 0 to 3
    age      double  numbers 18 to 47.5, standardised

    Args:
      data: a frame of pandas or Polars, an Arrow table, columns by name, the path of Parquet or text files, a source.
      target: the column to predict, or several of them; None: a log of choices, such as views or purchases, where each
        row is a user and an item that he chose: give ``user`` and ``item``.
      model: the name of a model, or a mapping with its name and options; None: "deepfm", for a log "dssm".
      evaluate: a share of the rows to hold out, other data to evaluate on, or None.
      evaluate_by: the column whose values are held out as one, such as the user; None: each row by itself.
      features: changes of the guesses, by column: "id", "number", "bag", "skip" or None for columns to leave out, a
        mapping of fields to set, such as ``{"embedding_dim": 32}``, or a `sparrow.data.Feature`. A name that is no
        column adds a feature.
      user: the columns that describe a user, the id first, for a model of two towers; empty: all but those of ``item``.
      item: the columns that describe an item, the id first, for a model of two towers.
      groups: the groups of features that the model reads; None: all features, as the model takes them.
      loss: the loss, or losses by target; None: by the values of the target.
      weight: the column of sample weights.
      embedding_dim: the dim of the tables; None: 8, and 16 for two towers.
      epochs: the most passes over the data; training ends earlier once evaluations do not improve.
      batch_size: examples in a batch; None: about a hundredth of the rows.
      seed: the seed of all random numbers.
      overrides: further fields of the config, as on the command line: ``["train.precision=bfloat16"]``.
    """
    given = () if target is None else (target,) if isinstance(target, str) else target
    if not isinstance(given, Sequence) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"target must be the name of a column, or a list of names, got {target!r}")
    if not isinstance(features or {}, Mapping):
        raise ConfigError(f"features must be a mapping from columns to kinds or features, got {features!r}")
    targets = tuple(given)
    user, item = ((given,) if isinstance(given, str) else tuple(given) for given in (user, item))
    model = model or ("deepfm" if targets else "dssm")
    if not targets and not (_is_matching(model) and user and item):
        raise ConfigError(
            "give target=, the column to predict; or, for a log of choices without one, user= and item=, the columns "
            "of who chose and of what"
        )
    for name, value in (("embedding_dim", embedding_dim), ("batch_size", batch_size), ("epochs", epochs)):
        if value is not None:
            fields.integer(f"guess: {name}", value)
    matching = _is_matching(model)
    held = given_rows(data, targets, evaluate, evaluate_by, seed, matching)
    columns = held.seen.column_names
    if "" in columns:
        raise ConfigError("a column has an empty name; give it one, or leave the column out")
    for name in (*targets, *([weight] if weight else []), *user, *item):
        if name not in columns:
            raise ConfigError(f"there is no column '{name}': {nearest(name, columns)}")
    tasks = tuple(
        read_target(
            name,
            held.seen[name],
            _loss_of(loss, name, matching),
            may_be_constant=matching or not held.complete,
        )
        for name in targets
    )
    settings = TWO_TOWERS if matching else RANKING
    readings = _readings(held, {*targets, weight}, features or {}, embedding_dim or settings.embedding_dim)
    readings = without_clashes(readings)
    if user:
        readings = _only({*user, *item, *(features or ())}, readings)
    kept = [reading.feature for reading in readings if reading.feature is not None]
    if not kept:
        raise ConfigError(_no_features(readings))
    names = ["match"] if matching else list(targets)
    items = [name for name in item if name in {feature.name for feature in kept}]
    classes = tasks[0].classes if tasks else 1
    section = model_section(model, kept, names, groups, items, classes, settings.dropout)
    rows = held.seen.num_rows
    size = batch_size or batch_size_of(rows)
    made = {
        "data": {
            "train": held.train,
            "evaluate": held.evaluate,
            "features": kept,
            "shuffle_rows": min(max(rows, 1), 100_000),
        },
        "model": section,
        "tasks": _tasks(tasks, matching, weight),
        "train": {
            **settings.train(size, has_wide_tables(section, kept)),
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.002},
            "batch_size": size,
            "epochs": epochs,
            "seed": seed,
        },
        "evaluate": {} if held.evaluate is None else _evaluation(tasks, matching, rows * items_of(kept, section)),
    }
    notes = held.notes
    if matching:
        made["data"]["drop_remainder"] = rows > size
        if not tasks:
            notes += ("every row is a choice, by in_batch_softmax: the other items of a batch are negatives",)
        chooser = user[0] if user else user_of(kept, section)
        if chooser is not None:
            made["data"]["user_column"] = chooser
            notes += (f"'{chooser}' is the user: items that a user chose are no negatives of his other rows",)
        if not targets:
            made["data"]["item_column"] = item[0]
    return Guess(configs.from_mapping(made, overrides=overrides), tasks, readings, notes)


def _only(named: set[str], readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """Return the readings with columns left out that are neither the user's nor the item's."""
    why = "left out: it is neither in user= nor in item="
    return tuple(each if each.column in named else each._replace(feature=None, words=why) for each in readings)


def _no_features(readings: Sequence[Reading]) -> str:
    """Return the sentence for a table without a column that could be a feature."""
    if not readings:
        return "there is no column besides the target; add columns to learn from"
    reasons = "; ".join(f"'{reading.column}' is {reading.words}" for reading in readings[:REASONS])
    more = f"; and {len(readings) - REASONS} more" if len(readings) > REASONS else ""
    return f"no column can be a feature: {reasons}{more}; give more rows or columns, or kinds of columns in features="


def _is_matching(model: Any) -> bool:
    name = model if isinstance(model, str) else dict(model).get("name")
    return name in ("dssm", "dssm_v2")


def _loss_of(loss: str | Mapping[str, str] | None, target: str, matching: bool) -> str | None:
    if matching and isinstance(loss, str):
        return None
    return loss if loss is None or isinstance(loss, str) else loss.get(target)


def _readings(
    held: Given, others: set[str | None], changes: Mapping[str, FeatureGuess], dim: int
) -> tuple[Reading, ...]:
    made = []
    for name in held.seen.column_names:
        if name not in others:
            made.append(_changed(name, held, changes.get(name, "guess"), dim))
    for name, change in changes.items():
        if name in held.seen.column_names:
            continue
        if isinstance(change, Mapping) and "kind" in change:
            change = feature_kinds.read({"name": name, **change})
        if not isinstance(change, Feature):
            raise ConfigError(f"features: there is no column '{name}': {nearest(name, held.seen.column_names)}")
        made.append(Reading(name, "", change, "as given"))
    if not any(reading.feature is not None and reading.feature.table_use is not None for reading in made):
        names = set(held.seen.column_names) - set(changes)
        made = [in_buckets(each, held.seen[each.column], dim) if each.column in names else each for each in made]
    return tuple(made)


def _changed(name: str, held: Given, change: Any, dim: int) -> Reading:
    if isinstance(change, Feature):
        return Reading(name, str(held.seen[name].type), change, "as given")
    if isinstance(change, Mapping) and "kind" in change:
        given = feature_kinds.read({"name": name, **change})
        return Reading(name, str(held.seen[name].type), given, "as given")
    forced: Any = "skip" if change is None else None if change == "guess" or isinstance(change, Mapping) else change
    if forced is not None:
        fields.choice(f"features['{name}']", forced, KINDS)
    read = read_column(name, held.seen[name], complete=held.complete, embedding_dim=dim, kind=forced)
    if not isinstance(change, Mapping):
        return read
    if read.feature is None:
        raise ConfigError(f"features['{name}']: give its kind as well: the column is {read.words}")
    fields_now = {**feature_kinds.to_dict(read.feature), **change}
    return read._replace(feature=feature_kinds.read(fields_now), words=f"{read.words}; {', '.join(change)} as given")


def _tasks(targets: Sequence[Target], matching: bool, weight: str | None) -> dict[str, Any]:
    weights = {} if weight is None else {"sample_weight": weight}
    if matching:
        metrics: list[Any] = [{"name": "recall_at_k", "top_k": 10}, "mrr"]
        label = {"label": targets[0].column} if targets else {}
        return {"match": {**label, "losses": ["in_batch_softmax"], "metrics": metrics, **weights}}
    return {
        target.column: {
            "label": target.column,
            "losses": [losses.make(target.loss, **target.fields)],
            "metrics": METRICS[target.kind],
            **weights,
        }
        for target in targets
    }


def _evaluation(targets: Sequence[Target], matching: bool, pairs: int) -> dict[str, Any]:
    """Return the section ``evaluate``. ``pairs``: rows times items, for two towers; 0: the item is not known."""
    mode: Literal["max", "min"] = "min"
    if matching:
        name, mode = ("catalogue_recall_at_10", "max") if 0 < pairs <= RANKED else ("loss", "min")
    else:
        metric = METRICS[targets[0].kind][0]
        mode = "min" if len(targets) > 1 or MODES[metric] == "min" else "max"
        name = "loss" if len(targets) > 1 else metric
    return {"every_epochs": 1, "early_stopping": {"metric": name, "mode": mode, "patience": PATIENCE}}
