"""The columns of users, items and candidates, as configs name them or towers imply; labels with their checks."""

from __future__ import annotations

import math
from collections.abc import Mapping

from sparrow.config.sections.config import Config
from sparrow.config.sections.tasks import Task
from sparrow.config.sections.train import Catalog
from sparrow.data import CandidateLabel, CheckedLabel, Feature, ItemCounts, Label, LabelCheck, Source, holds_one_key
from sparrow.errors import ConfigError
from sparrow.losses import Loss, registry


def is_matching(config: Config) -> bool:
    """Return whether the model has two towers."""
    return any(task.losses[0].is_matching for task in config.tasks.values())


def item_column(config: Config) -> str | None:
    """Return the column of the item's id; None: there are no two towers, or it is not known."""
    data, model = config.data, config.model
    if data is None or model is None or not is_matching(config):
        return None
    if data.negatives is not None:
        return data.negatives.id_column
    if data.item_column is not None:
        return data.item_column
    group = model.groups.get(item_group(config) or "", ())
    ids = {f.one_id: f.table_use.num_rows for f in data.features if f.name in group and f.one_id and f.table_use}
    return max(ids, key=lambda column: ids[column]) if ids else None


def item_group(config: Config) -> str | None:
    """Return the group of features that describe an item; None: it is not known."""
    data, model = config.data, config.model
    if data is not None and data.negatives is not None:
        return data.negatives.group
    group = getattr(getattr(None if model is None else model.architecture, "item_tower", None), "input", None)
    return group if isinstance(group, str) else None


def item_features(config: Config) -> set[str]:
    """Return the names of the features that an item's vector is made of."""
    assert config.model is not None
    groups = (item_group(config), getattr(config.model.architecture, "item_augment", None))
    return {name for group in groups if group is not None for name in config.model.groups[group]}


def catalog_of(config: Config) -> Catalog | None:
    """Return the section for ranks among all items; None: it is switched off, or does not fit the model.

    Raises `ConfigError` where it is given and does not fit.
    """
    given, model = config.evaluate.catalog, config.model
    if given is False:
        return None
    why = None
    if not is_matching(config) or model is None:
        why = "ranks among all items are of models with two towers; remove it"
    elif getattr(model.architecture.model, "query_reads_item", False):
        why = "the user's vector of this model depends on the item, so that items cannot be ranked by it; remove it"
    elif item_column(config) is None or item_group(config) not in model.groups:
        why = "needs data.item_column, the column of the item's id"
    if why is None:
        return Catalog() if given is True else given
    if given is not True:
        raise ConfigError(why, at=("evaluate", "catalog"))
    return None


def catalog_items(config: Config) -> tuple[Source, str]:
    """Return a source of all items, and the column of their ids in it.

    They are the items of ``evaluate.catalog``, of ``data.negatives``, or those of the data to train on, each in many
    rows.
    """
    data, section = config.data, catalog_of(config) or Catalog()
    item = item_column(config)
    assert data is not None
    assert item is not None
    if section.items is not None:
        return section.items, section.id_column or item
    if data.negatives is not None and data.negatives.items is not None:
        return data.negatives.items, section.id_column or data.negatives.items_id_column or item
    return data.train_events, item


def catalog_user(config: Config) -> str | None:
    """Return the column of the user's id for ranks among all items; None: each example is a user."""
    section = catalog_of(config)
    return None if section is None else section.user_column or user_column(config)


def user_column(config: Config) -> str | None:
    """Return the column of the user's id; None: there are no two towers, or it is not known."""
    data = config.data
    if data is None or not is_matching(config):
        return None
    return data.user_column or (None if data.negatives is None else data.negatives.user_column)


def candidate_keys(config: Config, source: Source, is_training: bool) -> list[str]:
    """Return the columns of items and users that a batch needs for the losses of two towers."""
    item = item_column(config)
    if item is not None and _is_guess(config) and not holds_one_key(source, item):
        item = None
    found = (item, user_column(config), None if is_training else catalog_user(config))
    return list(dict.fromkeys(column for column in found if column is not None))


def item_counts(config: Config) -> ItemCounts | None:
    """Return the counts of the items in the data to train on; None: no loss needs them, or the column is not known."""
    data, item = config.data, item_column(config)
    if data is None or item is None or (_is_guess(config) and not holds_one_key(data.train_events, item)):
        return None
    losses = [loss for task in config.tasks.values() for loss in task.losses]
    needed = any(loss.negatives == "batch" and loss.corrects_frequency for loss in losses)
    return ItemCounts(data.train_events, item, data.bad_rows) if needed else None


def _is_guess(config: Config) -> bool:
    return config.data is not None and config.data.negatives is None and config.data.item_column is None


def candidate_notes(config: Config, counts: ItemCounts | None) -> list[str]:
    """Return a line for the log on each softmax of two towers: its correction, and the negatives that it leaves out."""
    found = [loss for task in config.tasks.values() for loss in task.losses]
    return [_note(config, loss, counts) for loss in found if loss.negatives is not None]


def _note(config: Config, loss: Loss, counts: ItemCounts | None) -> str:
    name, item, user = registry.name_of(loss), item_column(config), user_column(config)
    by_counts = loss.corrects_frequency and loss.negatives == "batch"
    if item is None or config.data is None or (counts is None and by_counts):
        return (
            f"{name}: no log-Q correction, no masks of duplicates; set data.item_column to the column of the item's id"
        )
    correction = "no log-Q correction (log_q is false)"
    if by_counts and counts is not None:
        keys, rows = counts.counted
        correction = f"log-Q correction by the counts of '{item}' ({len(keys):,} items in {rows.sum():,} rows)"
    elif loss.corrects_frequency and config.data.negatives is not None:
        weight = config.data.negatives.weight_column
        correction = f"log-Q correction by {'uniform weights' if weight is None else f'the weights {weight!r}'}"
    masks = f"copies of the chosen '{item}'"
    if user is not None:
        masks += f" and further items of its '{user}' in the batch"
    return f"{name}: {correction}; {masks} are excluded from the negatives"


def candidate_sequence(config: Config) -> Feature | None:
    """Return a sequence that holds an element for each candidate of an example; None: an example is one candidate."""
    if config.model is None or config.data is None:
        return None
    group = config.model.architecture.candidate_group
    names = () if group is None else config.model.groups.get(group, ())
    found = [feature for feature in config.data.features if feature.name in names and feature.sequence_length]
    return found[0] if found else None


def read_labels(task: Task) -> list[str]:
    """Return the labels of a task; some losses read none, as those of two towers: a row's item is the one chosen."""
    label = [task.label] if any(loss.reads_label for loss in task.losses) else []
    return [*label, *([task.task_space_label] if task.task_space_label else [])]


def label_of(config: Config, label: Label) -> Label:
    """Return the label as the data holds it: a list, where an example has several candidates."""
    sequence = candidate_sequence(config)
    if sequence is None:
        return label
    return CandidateLabel(
        **vars(label),
        max_length=sequence.sequence_length or 0,
        keep=getattr(sequence, "keep", "last"),
        separator=getattr(sequence, "separator", None),
    )


def label_lengths(config: Config) -> list[tuple[str, tuple[str, ...]]]:
    """Return the labels whose lengths must be those of the candidates, by group, after a sequence of candidates."""
    sequence = candidate_sequence(config)
    if sequence is None or config.model is None:
        return []
    labels = [name for task in config.tasks.values() for name in read_labels(task)]
    return [(str(config.model.architecture.candidate_group), (sequence.name, *dict.fromkeys(labels)))]


def checked_label(config: Config, label: Label, others: Mapping[str, Label]) -> Label:
    """Return the label with the checks that the losses of its tasks need. ``others``: derived labels, by name."""
    checks = [
        check
        for name, task in config.tasks.items()
        for loss in task.losses
        if task.label == label.name and (check := _check(config, name, task, loss, others)) is not None
    ]
    if not checks:
        return label
    return CheckedLabel(**vars(label), checks=tuple(dict.fromkeys(checks)))


def _check(config: Config, name: str, task: Task, loss: Loss, others: Mapping[str, Label]) -> LabelCheck | None:
    if loss.label_kind not in ("binary", "class"):
        return None
    is_class = loss.label_kind == "class"
    classes = loss.num_classes or _classes_of(config, name)
    without_space = task.task_space_label is None or task.out_task_space_weight != 0
    return LabelCheck(
        user=f"{registry.name_of(loss)} of the task '{name}'",
        most=1.0 if not is_class else classes - 1 if classes is not None else math.inf,
        integers=is_class,
        weight=task.sample_weight,
        space=None if without_space else others.get(task.task_space_label or "", Label(task.task_space_label or "")),
    )


def _classes_of(config: Config, task: str) -> int | None:
    """Return the number of logits that the model has for a task; None where its options do not give it."""
    architecture = None if config.model is None else config.model.architecture
    towers = getattr(architecture, "task_towers", ())
    described = next((tower for tower in towers if tower.task == task), architecture)
    number = getattr(described, "num_classes", None)
    return number if isinstance(number, int) and number > 1 else None
