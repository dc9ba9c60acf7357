"""The batches of each optimizer step, the first of them read early, and calls: the steps of one program."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sparrow.feed import Pipeline, Prepared
from sparrow.runs.loop.together import Together
from sparrow.runs.step.calls import kind


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


class Early(Iterator[Prepared]):
    """The batches of a pipeline. A thread waits for the first of them from the beginning."""

    def __init__(self, pipeline: Pipeline[Prepared]) -> None:
        self._pipeline, self._batches = pipeline, iter(pipeline)
        pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sparrow-first-batch")
        self._first: concurrent.futures.Future[Prepared] | None = pool.submit(next, self._batches)
        pool.shutdown(wait=False)  # the thread ends with the batch

    def __next__(self) -> Prepared:
        """Return the next batch, or raise the error of the data at its place."""
        if self._first is None:
            return next(self._batches)
        first, self._first = self._first, None
        try:
            return first.result()
        except BaseException:
            self._batches.close()  # type: ignore[attr-defined]
            raise

    def close(self) -> None:
        """End the reading, even before the first batch is there."""
        if self._first is not None:
            self._pipeline.waits.interrupted = lambda: True
            first, self._first = self._first, None
            concurrent.futures.wait([first])
        self._batches.close()  # type: ignore[attr-defined]


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
    return taken.epoch, *kind([prepared.feed for prepared in taken.batches])


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
