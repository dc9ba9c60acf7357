"""Calls: the steps that the device gets at once, and the place of each step in its call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from sparrow.runs.loop.staging import Taken


def calls_of(steps: Iterable[Taken], most: int, until_pause: Callable[[], int]) -> Iterator[tuple[Taken, ...]]:
    """Yield the steps of each call: ``most`` of one kind where nothing is due between them, else one.

    So there are two programs, of one step and of ``most``.

    Args:
      steps: the steps, in order.
      most: steps of a call.
      until_pause: returns the number of steps up to the next one after which something is due. Called after the
        steps of the last call were made.
    """
    held: list[Taken] = []
    for taken in steps:
        if held and _kind(taken) != _kind(held[0]):
            yield from ((one,) for one in held)
            held = []
        if most == 1 or (not held and until_pause() < most):
            yield (taken,)
            continue
        held.append(taken)
        if len(held) == most:
            yield tuple(held)
            held = []
    yield from ((one,) for one in held)


def _kind(taken: Taken) -> tuple[Any, ...]:
    """Return the facts that the steps of a call have in common."""
    feeds = [prepared.feed for prepared in taken.batches]
    return taken.epoch, *((feed.layout, feed.size, np.shape(feed.buffer), feed.slot is None) for feed in feeds)


def until_due(step: int, every: Iterable[int | None]) -> int | None:
    """Return the number of steps after ``step`` up to the next multiple of one of the numbers; None: there are none.

    >>> until_due(6, [5, 4, None]), until_due(5, [5, None]), until_due(5, [None])
    (2, 5, None)
    """
    return min((number - step % number for number in every if number is not None), default=None)


def is_due(count: int, every: int | None) -> bool:
    """Return whether ``count`` is a multiple of ``every``.

    >>> is_due(6, 3), is_due(7, 3), is_due(7, None)
    (True, False, False)
    """
    return every is not None and count % every == 0
