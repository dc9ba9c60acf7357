"""The columns of users and items, for the losses of two towers: as the config names them, or as its towers imply."""

from __future__ import annotations

from sparrow.config.sections.config import Config
from sparrow.data import IdFeature, ItemCounts, Source, holds_one_key
from sparrow.losses import InBatchSoftmax


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
    group = model.groups.get(getattr(getattr(model.architecture, "item_tower", None), "input", None) or "", ())
    ids = [f for f in data.features if f.name in group and isinstance(f, IdFeature)]
    single = [f for f in ids if f.compute is None and f.separator is None]
    return max(single, key=lambda feature: feature.num_rows).id_column if single else None


def user_column(config: Config) -> str | None:
    """Return the column of the user's id; None: there are no two towers, or it is not known."""
    data = config.data
    if data is None or not is_matching(config):
        return None
    return data.user_column or (None if data.negatives is None else data.negatives.user_column)


def candidate_keys(config: Config, source: Source) -> list[str]:
    """Return the columns of items and users that a batch needs for the losses of two towers."""
    item, user = item_column(config), user_column(config)
    if item is not None and _is_guess(config) and not holds_one_key(source, item):
        item = None
    return [column for column in (item, user) if column is not None]


def item_counts(config: Config) -> ItemCounts | None:
    """Return the counts of the items in the data to train on; None: no loss needs them, or the column is not known."""
    data, item = config.data, item_column(config)
    if data is None or item is None or (_is_guess(config) and not holds_one_key(data.train, item)):
        return None
    losses = [loss for task in config.tasks.values() for loss in task.losses]
    needed = any(isinstance(loss, InBatchSoftmax) and loss.log_q for loss in losses)
    return ItemCounts(data.train, item, data.bad_rows) if needed else None


def _is_guess(config: Config) -> bool:
    return config.data is not None and config.data.negatives is None and config.data.item_column is None
