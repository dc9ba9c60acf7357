"""The batches of each optimizer step."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

from sparrow.feed import Pipeline, Prepared
from sparrow.runs.loop.early import Early
from sparrow.runs.loop.together import Together


class Taken(NamedTuple):
    """The micro-batches of one step.

    Attributes:
      batches: the batches.
      position: the position in the data after them.
      epoch: epochs that were complete when the last of them began.
      following: the batches of the next step, where this one looks them up.
    """

    batches: tuple[Prepared, ...]
    position: Mapping[str, Any]
    epoch: int
    following: tuple[Prepared, ...] = ()


def groups_of(
    pipeline: Pipeline[Prepared] | Together, accumulate: int, steps: int | None, early: Early | None = None
) -> Generator[Taken, None, None]:
    """Yield the batches of each step as the pipeline makes them."""
    with contextlib.closing(early or iter(pipeline)) as batches:  # type: ignore[type-var]
        for _ in itertools.count() if steps is None else range(steps):
            group = tuple(itertools.islice(batches, accumulate))
            if not group:
                return
            yield Taken(group, pipeline.position(), pipeline.epochs_begun)
            del group
