"""The length of a run in optimizer steps, where it is known before the start."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparrow.config import Config, counts_epochs, epochs_in_steps
from sparrow.data import Pipeline


class Length(NamedTuple):
    """The length of a run.

    Attributes:
      config: the config, with the number of steps per epoch in its schedules.
      steps: the number of steps; malformed rows that are left out make it smaller. None: not known for the source.
      note: the number of steps per epoch, for the log; empty where no schedule counts epochs.
    """

    config: Config
    steps: int | None
    note: str = ""


def length(config: Config, pipeline: Pipeline[Any]) -> Length:
    """Return the length of a run on these batches. Rows are counted only where epochs matter."""
    train, scheduled = config.train, counts_epochs(config)
    batches = pipeline.batches_per_epoch() if scheduled or train.epochs is not None else None
    if batches is None:
        return Length(config, train.steps)
    steps = train.steps or -(-batches * (train.epochs or 1) // train.accumulate)
    if not scheduled:
        return Length(config, steps)
    epoch = max(1, -(-batches // train.accumulate))
    return Length(epochs_in_steps(config, epoch), steps, f"learning rates that count epochs: an epoch is {epoch} steps")
