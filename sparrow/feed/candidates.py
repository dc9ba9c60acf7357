"""The columns of a batch that the losses of two towers read: ids of items and users, and log Q."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.config import Assembly, Config, item_column, user_column
from sparrow.data import ID, Batch, ItemCounts
from sparrow.embedding import Ragged
from sparrow.kernels import feed
from sparrow.losses import Loss, registry
from sparrow.tasks import NEGATIVE_IDS, NEGATIVE_LOG_Q, POSITIVE_IDS, POSITIVE_LOG_Q, TAKES_PART, USERS

ITEMS = "item_counts"
"""The name of the counts of items in a checkpoint."""


def candidate_columns(batch: Batch, assembly: Assembly, counts: ItemCounts | None) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of two towers; none where the batch lacks the keys of items, as in predictions."""
    drawn, item, user = batch.negatives, assembly.item_id, assembly.user_id
    if item is None or item not in batch.keys:
        return {}
    chosen = batch.keys[item]
    found: dict[str, npt.NDArray[Any]] = {}
    if drawn is None and counts is not None:
        found[POSITIVE_LOG_Q] = counts.log_q(chosen)
    if drawn is not None and batch.log_q is not None:
        found[POSITIVE_LOG_Q], found[NEGATIVE_LOG_Q] = batch.log_q[: len(chosen)], batch.log_q[len(chosen) :]
    if batch.takes_part is not None:
        return found | {TAKES_PART: batch.takes_part.astype(np.int32)}
    numbers = numbered(chosen if drawn is None else np.concatenate([chosen, drawn.keys[ID]]))
    found[POSITIVE_IDS] = numbers[: len(chosen)]
    if drawn is not None:
        found[NEGATIVE_IDS] = numbers[len(chosen) :]
    if user is not None and user in batch.keys:
        found[USERS] = numbered(batch.keys[user])
    return found


def numbered(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return the keys of one batch as 0, 1, ...: devices have 32 bits, and only equality within the batch matters."""
    made = feed.numbered(keys)
    return np.unique(keys, return_inverse=True)[1].astype(np.int32) if made is None else made


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
    return f"{name}: {correction}; {masks} are no negatives"


def padded_labels(labels: Any, most: int | None) -> npt.NDArray[np.float32]:
    """Return labels as a step takes them: lists as ``(batch, most)``, with zeros behind each.

    >>> padded_labels(Ragged(np.array([1, 0, 1], np.float32), np.array([0, 2, 3])), 2).tolist()
    [[1.0, 0.0], [1.0, 0.0]]
    """
    if not isinstance(labels, Ragged) or most is None:
        held: npt.NDArray[np.float32] = labels
        return held
    offsets = np.asarray(labels.offsets)
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    made = np.zeros((len(offsets) - 1, most), np.float32)
    made[rows, np.arange(len(rows)) - offsets[rows]] = labels.values
    return made
