"""Steps in the order in which they are made, each with the rows that come before it: planned over a window of steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TypeVar

from sparrow.embedding.host.plans import IdsOf
from sparrow.embedding.host.tables import HostTables, Swap

T = TypeVar("T")


def staged(
    host: HostTables, steps: Iterable[T], ids_of: Callable[[T], Sequence[IdsOf]]
) -> Generator[tuple[T, Swap], None, None]:
    """Yield each step with its swap; the entries of its batches are slots then.

    ``ids_of(step)`` returns the entries of its batches by stack, which are read and then overwritten. A step is yielded
    once ``host.lookahead`` further steps are known, or the last one is.
    """
    window: deque[T] = deque()
    for step in steps:
        host.see(ids_of(step))
        window.append(step)
        del step
        if len(window) > host.lookahead:
            oldest = window.popleft()
            yield oldest, host.stage(ids_of(oldest))
            del oldest
    while window:
        oldest = window.popleft()
        yield oldest, host.stage(ids_of(oldest))
        del oldest
