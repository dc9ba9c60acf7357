"""The columns of a batch that are not in the data: ids of items and users and log Q for two towers, and padding."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.data import ID, Batch, ItemCounts
from sparrow.embedding import Ragged
from sparrow.kernels import feed

POSITIVE_IDS: Final = "<ids of the items chosen>"
NEGATIVE_IDS: Final = "<ids of the items drawn>"
TAKES_PART: Final = "<items drawn that are negatives>"
USERS: Final = "<users>"
POSITIVE_LOG_Q: Final = "<log Q of the items chosen>"
NEGATIVE_LOG_Q: Final = "<log Q of the items drawn>"
CANDIDATES: Final = (POSITIVE_IDS, NEGATIVE_IDS, TAKES_PART, USERS, POSITIVE_LOG_Q, NEGATIVE_LOG_Q)
"""Columns of a batch for two towers, in the order of `sparrow.losses.Towers`; no column has such names."""
IS_EXAMPLE: Final = "~ whether a row is an example"
"""The column of a batch that may be padded: (batch,) float32, 1 for examples and 0 for padding behind them.

Its name comes after those of other columns, as its place in the buffer of a batch does: a batch that is packed again,
in the order of names, keeps its layout and its program.
"""


@functools.lru_cache(maxsize=8)  # most batches are complete
def is_example(rows: int, examples: int) -> npt.NDArray[np.float32]:
    """Return the column of a batch of ``rows`` that is 1 for its first ``examples`` rows, and 0 for padding."""
    made = (np.arange(rows) < examples).astype(np.float32)
    made.flags.writeable = False
    return made


def candidate_columns(
    batch: Batch, item: str | None, user: str | None, counts: ItemCounts | None
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of two towers, whose keys are in the columns ``item`` and ``user``.

    There are none where the batch lacks the keys of items, as in predictions.
    """
    drawn = batch.negatives
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
    numbers = feed.numbered(chosen if drawn is None else np.concatenate([chosen, drawn.keys[ID]]))
    # Devices have 32 bits, and only equality within the batch matters.
    found[POSITIVE_IDS] = numbers[: len(chosen)]
    if drawn is not None:
        found[NEGATIVE_IDS] = numbers[len(chosen) :]
    if user is not None and user in batch.keys:
        found[USERS] = feed.numbered(batch.keys[user])
    return found


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
