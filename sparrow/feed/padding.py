"""Padding of short batches: whether a program may pad them, and the column that marks the padding."""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
import numpy.typing as npt

from sparrow.config import Config, need

Use = Literal["train", "evaluate", "predict"]
"""The use of batches."""


def may_pad(config: Config, use: Use, *, has_statistics: bool = False) -> bool:
    """Return whether rows of padding change no result: no example of a batch may depend on another one.

    Where examples are compared (softmax over the batch, sessions, drawn negatives) or normalised together (batch
    normalisation in training, variational dropout), and for models and losses of one's own that are not known to be
    per example, the short last batch keeps its size and has a program of its own.
    """
    model, data = need(config.model, "model"), need(config.data, "data")
    encoders = [record for records in model.encoders.values() for record in records]
    if not all(part.is_per_example for part in (model.architecture, *encoders)):
        return False
    if use == "predict":
        return True
    losses = [loss for task in config.tasks.values() for loss in task.losses]
    if data.negatives is not None or data.tree is not None or not all(loss.is_per_example for loss in losses):
        return False
    if use == "evaluate":
        return True
    return not (data.drop_remainder or has_statistics or model.variational_dropout is not None)


@functools.lru_cache(maxsize=8)  # most batches are complete
def is_example(rows: int, examples: int) -> npt.NDArray[np.float32]:
    """Return the column of a batch of ``rows`` that is 1 for its first ``examples`` rows, and 0 for padding."""
    made = (np.arange(rows) < examples).astype(np.float32)
    made.flags.writeable = False
    return made
