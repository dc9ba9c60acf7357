"""`guess`: the config that a frame stands for, with every guess in sight; `fit` trains it."""

from __future__ import annotations

import dataclasses
import inspect
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final, TextIO

import pyarrow.compute as pc

from sparrow import config as configs
from sparrow import fields, runs
from sparrow.config import Config, ConfigError
from sparrow.data import Feature, SequenceFeature, is_list
from sparrow.data.features import registry as feature_kinds
from sparrow.files import replace_file
from sparrow.frames import models
from sparrow.frames.columns import KINDS, Kind, Reading, in_buckets, read_column, without_repeats
from sparrow.frames.labels import BEST_BY, METRICS, Target, is_calibrated, read_target
from sparrow.frames.rows import TENTH, Given, given_rows, held_events, held_out, share_held_out
from sparrow.losses import registry as losses
from sparrow.registry import answering, nearest

TOP: Final = 20
"""The length of the lists that two towers are judged by."""
ALL: Final = 20_000
"""Items of at most this many are all negatives of each example, for models of histories; of more, some are drawn."""
LENGTH: Final = 50
"""The most events of a history."""
REASONS: Final = 5
"""Columns that an error names."""
LEFT: Final = 'style="text-align: left"'
"""Cells of words in a notebook, which would put them to the right."""

FeatureGuess = Kind | Mapping[str, Any] | Feature | None


@dataclasses.dataclass(frozen=True)
class Guess:
    """The config of a frame, for `sparrow.runs.train`, and how it came about; printing shows each column."""

    config: Config
    targets: tuple[Target, ...]
    readings: tuple[Reading, ...]
    notes: tuple[str, ...] = ()

    def yaml(self) -> str:
        """Return the config as YAML; data in memory is named, not written."""
        return configs.dumps(self.config)

    def save(self, path: str | Path) -> None:
        replace_file(Path(path), self.yaml().encode())

    def lines(self) -> list[str]:
        rows = self._rows()
        widths = [max((len(row[i]) for row in rows), default=0) for i in (0, 1)]
        lines = [f"{name:{widths[0]}}  {kind:{widths[1]}}  {words}" for name, kind, words in rows]
        return [*lines, *self.notes]

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = [(target.column, "", f"target: {target.words}") for target in self.targets]
        return rows + [(reading.column, reading.kind, reading.words) for reading in self.readings]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        cells = [[f"<td {LEFT}>{escape(cell)}</td>" for cell in row] for row in self._rows()]
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in cells)
        head = "".join(f"<th {LEFT}>{name}</th>" for name in ("column", "type", "read as"))
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<table><tr>{head}</tr>{body}</table>{notes}"


def fit(
    data: Any,
    target: str | Sequence[str] | None = None,
    model: str | Mapping[str, Any] | None = None,
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    stream: TextIO | None = None,
    **options: Any,
) -> runs.Run:
    """Train a model on a frame, evaluate it, and return the run, with its best state.

    The features are inferred from the columns and shown; `guess` takes the same arguments and shows them without
    training. The run has a config as one from a file has, ``run.config``, and the same engine trains it. For a log of
    choices, ``fit(log, user="user", item="item")``, `Run.recommend` gives the items of each user.

    Args:
      data: the rows, as `guess` takes them.
      target: the column to predict, or several; None: a log of choices.
      model: the model, as `guess` takes it.
      folder: the folder of the run; None: a temporary one, which ends with the run; ``run.save`` keeps it.
      resume: whether to continue the run in that folder.
      overwrite: whether to replace the run in that folder.
      stream: the stream of the log; by default the standard output.
      **options: the other arguments of `guess`: evaluate, evaluate_by, features, user, item, time, groups, loss,
        weight, embedding_dim, epochs, batch_size, seed, overrides.
    """
    names = {*inspect.signature(fit).parameters, *inspect.signature(guess).parameters} - {"options"}
    for name in options.keys() - names:
        raise TypeError(f"fit has no argument '{name}': {nearest(name, names)}")
    made = guess(data, target, model, **options)
    for line in made.lines():
        print(line, file=stream or sys.stdout)
    if folder is not None:
        return runs.train(made.config, folder, resume=resume, overwrite=overwrite, stream=stream)
    aside = Path(tempfile.mkdtemp(prefix="sparrow-"))
    try:
        run = runs.train(made.config, aside / "run", stream=stream)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    weakref.finalize(run, shutil.rmtree, aside, ignore_errors=True)
    return run


@answering
def guess(
    data: Any,
    target: str | Sequence[str] | None = None,
    model: str | Mapping[str, Any] | None = None,
    *,
    evaluate: Any = True,
    evaluate_by: str | None = None,
    features: Mapping[str, FeatureGuess] | None = None,
    user: str | Sequence[str] = (),
    item: str | Sequence[str] = (),
    time: str | None = None,
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
    age      double  numbers 18 to 47.5, standardized

    Args:
      data: a frame of pandas or Polars, an Arrow table, columns by name, the path of Parquet or text files, a source.
      target: the column to predict, or several of them; None: a log of choices, such as views or purchases, where each
        row is a user and an item that the user chose: give ``user`` and ``item``.
      model: the name of a model, or a mapping with its name and options; None: "deepfm", for a log "dssm", with
        ``time`` "sasrec".
      evaluate: a share of the rows to hold out, other data to evaluate on, or None. True: a tenth of the rows, fewer
        for two towers where ranks among all items would take more than a fifth of the run; with ``time``, the last
        event of each user, and a share holds out the newest events.
      evaluate_by: the column whose values are held out as one, such as the user; None: each row by itself.
      features: changes of the guesses, by column: "id", "number", "bag", "skip" or None for columns to leave out, a
        mapping of fields to set, such as ``{"embedding_dim": 32}``, or a `sparrow.data.Feature`. A name that is no
        column adds a feature.
      user: the columns that describe a user, the id first, for a model of two towers; empty: all but those of ``item``.
      item: the columns that describe an item, the id first, for a model of two towers.
      time: the column of the time, for a log of choices whose order counts: the model learns which item comes next.
      groups: the groups of features that the model reads; None: all features, as the model takes them.
      loss: the loss, or losses by target; None: by the values of the target.
      weight: the column of sample weights.
      embedding_dim: the dim of the tables; None: 8, and 64 for a log of choices.
      epochs: the most passes over the data; training ends earlier once evaluations do not improve.
      batch_size: examples in a batch; None: about a hundredth of the rows, at most 4,096, and 1,024 for two towers.
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
    model = model or ("deepfm" if targets else "dssm" if time is None else "sasrec")
    if not isinstance(model, str) and not (isinstance(model, Mapping) and isinstance(model.get("name"), str)):
        raise ConfigError(f"model must be a name, or a mapping with the name and options, got {model!r}")
    matching, is_next = _is_one_of(model, (*models.TOWERS, *models.HISTORIES)), _is_one_of(model, models.HISTORIES)
    if not targets and user and item and not matching:
        suitable = ", ".join((*models.TOWERS, *models.HISTORIES))
        raise ConfigError(
            f"a log of choices without a target is for the models {suitable}; choose one, or give target="
        )
    if not targets and not (user and item):
        raise ConfigError(
            "give target=, the column to predict; or, for a log of choices without one, user= and item=, the columns "
            "of who chose and of what"
        )
    if is_next != (time is not None) or (is_next and (targets or len(item) > 1)):
        raise ConfigError(
            f"time= is for a log of choices without a target, one column in item= and one of the models "
            f"{', '.join(models.HISTORIES)}; these models need time="
        )
    if both := {*user} & {*item}:
        raise ConfigError(f"user= and item= both name the column '{min(both)}'; keep it in one of them")
    if isinstance(overrides, str):
        raise ConfigError(f"overrides must be a list such as ['{overrides}'], got a string")
    for name, value in (("embedding_dim", embedding_dim), ("batch_size", batch_size), ("epochs", epochs)):
        if value is not None:
            fields.integer(name, value)
    held = given_rows(data, targets, matching)
    columns = held.seen.column_names
    if "" in columns:
        raise ConfigError("a column has an empty name; give it one, or leave the column out")
    for name in (*targets, *(each for each in (weight, time) if each), *user, *item):
        if name not in columns:
            raise ConfigError(f"there is no column '{name}': {nearest(name, columns)}")
    may_be_constant = matching or not held.complete
    tasks = tuple(
        read_target(name, held.seen[name], _loss_of(loss, name, matching), may_be_constant=may_be_constant)
        for name in targets
    )
    settings: models.Settings = models.NEXT_ITEM if is_next else models.TWO_TOWERS if matching else models.RANKING
    dim = embedding_dim or settings.embedding_dim
    ids: dict[str, FeatureGuess] = dict.fromkeys((*user[:1], *item[:1]), "id") if matching and not targets else {}
    readings = _readings(held, {*targets, weight}, {**ids, **(features or {})}, dim)
    by_column = {reading.column: reading for reading in readings}
    for column in ids.keys() - (features or {}).keys():
        reading = by_column[column]
        if reading.feature is None or not reading.feature.is_sparse or is_list(held.seen[column].type):
            raise ConfigError(f"user= and item= begin with ids, integers or strings; '{column}' is {reading.words}")
    readings = models.without_clashes(without_repeats(readings, held.seen, {*user, *item, *(features or ())}))
    if user:
        named = {*item} if is_next else {*user, *item, *(features or ())}
        readings = _only(named, readings, {user[0]: "whose history it is", time: "the order of the events"})
    kept = [reading.feature for reading in readings if reading.feature is not None]
    if not kept:
        raise ConfigError(_no_features(readings))
    items = [name for name in item if name in {feature.name for feature in kept}]
    notes = held.notes
    rows = held.rows
    if is_next:
        rows = pc.count_distinct(held.seen[user[0]]).as_py()
        kept.append(_seen(kept[0], held.seen[user[0]]))
        notes += (f"the items of each '{user[0]}' in the order of '{time}' are a history; what comes next is learned",)
    names = ["next"] if is_next else ["match"] if matching else list(targets)
    section = models.model_section(
        model, kept, names, groups, items, tasks[0].classes if tasks else 1, settings.dropout
    )
    size = batch_size or settings.batch_size(rows)
    choice: dict[str, Any] = {"name": "sampled_softmax" if is_next else "in_batch_softmax"}
    choice |= {"temperature": models.TEMPERATURE} if section["architecture"].get("similarity") == "cosine" else {}
    made: dict[str, Any] = {
        "data": {"train": held.train, "features": kept, "shuffle_rows": min(max(rows, 1), 100_000)},
        "model": section,
        "tasks": _tasks(tasks, {names[0]: choice} if matching else {}, weight, calibrate=evaluate is not None),
        "train": {
            **settings.train(size, models.has_wide_tables(section, kept)),
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.002},
            "batch_size": size,
            "epochs": epochs,
            "seed": seed,
        },
    }
    count = models.items_of(kept, items)
    if is_next:
        made["data"]["negatives"] = {"group": "item", "id_column": item[0], "count": "all" if count <= ALL else 1024}
        made["data"]["histories"] = {"time_column": time, "max_length": LENGTH, **held_events(evaluate)}
        made["data"] |= {"user_column": user[0], "item_column": item[0]}
        every = 1
        is_evaluated = evaluate is not None
    else:
        share, every = share_held_out(rows, count, size) if matching and evaluate is True else (TENTH, 1)
        more, note = held_out(held, share if evaluate is True else evaluate, evaluate_by, seed)
        made["data"] |= more
        notes += note
        is_evaluated = bool(more)
    if is_evaluated:
        made["evaluate"] = _evaluation(tasks, matching, every, knows_item=count > 0)
    if matching and not is_next:
        made["data"]["drop_remainder"] = rows > size
        if not tasks:
            notes += ("every row is a choice, by in_batch_softmax: the other items of a batch are negatives",)
        chooser = user[0] if user else models.user_of(kept, section)
        if chooser is not None:
            made["data"]["user_column"] = chooser
            notes += (f"'{chooser}' is the user: items that a user chose are not negatives of the user's other rows",)
        if not targets:
            made["data"]["item_column"] = item[0]
    return Guess(configs.from_mapping(made, overrides=overrides), tasks, readings, notes)


def _seen(item: Any, users: Any) -> SequenceFeature:
    """Return the history of an item's feature, in the same table."""
    most = pc.max(pc.value_counts(users).field("counts")).as_py()
    same = ("embedding_dim", "num_buckets", "hash_bucket_size", "vocabulary", "unknown")
    shared = {name: getattr(item, name) for name in same}
    options: dict[str, Any] = {**shared, "table": item.table_use.table, "max_length": max(min(LENGTH, most - 1), 1)}
    return SequenceFeature(models.SEEN, column=f"{item.column or item.name}_history", **options)


def _only(named: set[str], readings: Sequence[Reading], other: Mapping[str | None, str]) -> tuple[Reading, ...]:
    """Return the readings with columns left out that are not ``named``; ``other``: the other uses of columns."""
    why = "left out: it is neither in user= nor in item="
    return tuple(
        each if each.column in named else each._replace(feature=None, words=other.get(each.column, why))
        for each in readings
    )


def _no_features(readings: Sequence[Reading]) -> str:
    """Return the sentence for a table without a column that could be a feature."""
    if not readings:
        return "there is no column besides the target; add columns to learn from"
    reasons = "; ".join(f"'{reading.column}' is {reading.words}" for reading in readings[:REASONS])
    more = f"; and {len(readings) - REASONS} more" if len(readings) > REASONS else ""
    return f"no column can be a feature: {reasons}{more}; give more rows or columns, or kinds of columns in features="


def _is_one_of(model: Any, names: Sequence[str]) -> bool:
    return (model if isinstance(model, str) else dict(model).get("name")) in names


def _loss_of(loss: str | Mapping[str, str] | None, target: str, matching: bool) -> str | None:
    if matching and isinstance(loss, str):
        return None
    return loss if loss is None or isinstance(loss, str) else loss.get(target)


def _readings(
    held: Given, others: set[str | None], changes: Mapping[str, FeatureGuess], dim: int
) -> tuple[Reading, ...]:
    own = [name for name in held.seen.column_names if name not in others]
    made = [_changed(name, held, changes.get(name, "guess"), dim) for name in own]
    for name, change in changes.items():
        if name in held.seen.column_names:
            continue
        if (given := _given_feature(name, change)) is None:
            raise ConfigError(f"features: there is no column '{name}': {nearest(name, held.seen.column_names)}")
        made.append(Reading(name, "", given, "as given"))
    if not any(reading.feature is not None and reading.feature.table_use is not None for reading in made):
        names = set(held.seen.column_names) - set(changes)
        made = [in_buckets(each, held.seen[each.column], dim) if each.column in names else each for each in made]
    return tuple(made)


def _given_feature(name: str, change: Any) -> Feature | None:
    """Return the feature that a change describes completely; None: it changes a guess."""
    if isinstance(change, Mapping) and "kind" in change:
        return feature_kinds.read({"name": name, **change})
    return change if isinstance(change, Feature) else None


def _changed(name: str, held: Given, change: Any, dim: int) -> Reading:
    if (given := _given_feature(name, change)) is not None:
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


def _tasks(
    targets: Sequence[Target], choices: dict[str, Any], weight: str | None, *, calibrate: bool
) -> dict[str, Any]:
    """Return the section ``tasks``; ``choices``: the task of two towers with its loss, else the targets are tasks."""
    weights = {} if weight is None else {"sample_weight": weight}
    if choices:
        label = {"label": targets[0].column} if targets else {}
        return {name: {**label, "losses": [loss], **weights} for name, loss in choices.items()}
    return {
        target.column: {
            "label": target.column,
            "losses": [losses.make(target.loss, **target.fields)],
            "metrics": METRICS[target.kind],
            **({"calibrate": True} if calibrate and is_calibrated(target) else {}),
            **weights,
        }
        for target in targets
    }


def _evaluation(targets: Sequence[Target], matching: bool, every: int, *, knows_item: bool) -> dict[str, Any]:
    name = "loss" if matching or len(targets) > 1 else BEST_BY[targets[0].kind]
    if name == "log_loss" and is_calibrated(targets[0]):
        name = "calibrated_log_loss"
    made: dict[str, Any] = {"every_epochs": every}
    stop = {"metric": name, "mode": "min", "patience": models.PATIENCE}
    if matching and knows_item:
        made["catalog"] = {"top_k": [TOP]}
        stop |= {"metric": f"catalog_recall_at_{TOP}", "mode": "max"}
    return {**made, "early_stopping": stop}
