"""The batches of each optimizer step, and, where tables are in host memory, the rows that come before it."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Generator, Mapping
from typing import Any, Final, NamedTuple

import jax

from sparrow.data import DataError, Pipeline, prefetched
from sparrow.embedding import HostTables, IdsOf, Swap, staged
from sparrow.runs.loop.early import Early
from sparrow.runs.loop.feed import Feed
from sparrow.runs.loop.preparer import Prepared, Preparer
from sparrow.runs.loop.program import Program
from sparrow.runs.loop.together import Together

AHEAD: Final = 2
"""Steps whose rows are on the device, or on their way to it, before they are taken."""


class Taken(NamedTuple):
    """The micro-batches of one step.

    Attributes:
      batches: the batches.
      position: the position in the data after them.
      epoch: epochs that were complete when the last of them began.
      swap: rows that come to the device before the step, and rows that leave; None: all tables are on the device.
      following: the batches of the next step, where this one looks them up.
    """

    batches: tuple[Prepared, ...]
    position: Mapping[str, Any]
    epoch: int
    swap: Swap | None = None
    following: tuple[Prepared, ...] = ()


def steps_of(
    program: Program, pipeline: Pipeline[Prepared] | Together, steps: int | None, early: Early | None = None
) -> Generator[Taken, None, None]:
    """Yield the batches of at most ``steps`` steps; the last step of the data may have fewer of them.

    Rows of tables in host memory are planned and gathered ahead, in a thread of their own. ``early``: the batches of
    the pipeline, where their reading has begun.
    """
    made = groups_of(pipeline, program.config.train.accumulate, steps, early)
    if program.host is None:
        yield from made
        return
    assert isinstance(pipeline, Pipeline)  # tables in host memory are of one device
    host, preparer = program.host, pipeline.prepare
    assert isinstance(preparer, Preparer)

    def ids_of(step: Taken) -> list[IdsOf]:
        return [entries_of(host, each.feed) for each in step.batches]

    def items() -> Generator[Taken, None, None]:
        try:
            for step, swap in staged(host, made, ids_of, lambda step: [each.new for each in step.batches]):
                batches = tuple(preparer.send(each, host.new_in_slots(each.new)) for each in step.batches)
                yield step._replace(batches=batches, swap=swap)
        except ValueError as error:
            raise DataError(str(error)) from None

    pipeline.counts_waits = False  # time counts as waited only where a step waits
    ready = prefetched(items, AHEAD, pipeline.wait)
    try:
        for step in ready:
            yield step
            del step
    finally:
        host.writer.close()  # or the thread would go on waiting for rows that no step sends home
        ready.close()


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


def entries_of(host: HostTables, feed: Feed) -> IdsOf:
    """Return the entries of a batch that is still on the host, by stack: parts of its buffer."""
    places = jax.tree.unflatten(feed.layout.structure, feed.layout.places)  # type: ignore[union-attr]
    made = {}
    for name in host.stacks:
        place = places.packed.lookups[name].ids
        made[name] = feed.buffer[place.word : place.word + math.prod(place.shape)]
    return made
