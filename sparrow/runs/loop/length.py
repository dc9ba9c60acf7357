"""How long a run is, in optimizer steps, where that can be known before it starts."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparrow.config import Config, counts_epochs, epochs_in_steps
from sparrow.data import Pipeline


class Length(NamedTuple):
    """How long a run is.

    Attributes:
      config: with schedules that know how many steps an epoch has.
      steps: that the run makes; malformed rows that are left out make it shorter. None: the source cannot tell.
      note: what was found out about epochs, to be said; empty where no schedule counts them.
    """

    config: Config
    steps: int | None
    note: str = ""


def length(config: Config, pipeline: Pipeline[Any]) -> Length:
    """The length of a run on these batches. Rows are counted only where epochs matter."""
    train, scheduled = config.train, counts_epochs(config)
    batches = pipeline.batches_per_epoch() if scheduled or train.epochs is not None else None
    if batches is None:
        return Length(config, train.steps)
    steps = train.steps or -(-batches * (train.epochs or 1) // train.accumulate)
    if not scheduled:
        return Length(config, steps)
    epoch = max(1, -(-batches // train.accumulate))
    return Length(epochs_in_steps(config, epoch), steps, f"learning rates that count epochs: an epoch is {epoch} steps")
