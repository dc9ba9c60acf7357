"""Steps in the order in which they are made, each with the rows that come before it: planned over a window of steps."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from sparrow.embedding.host.plans import IdsOf
from sparrow.embedding.host.swaps import Swap
from sparrow.embedding.host.tables import HostTables

if TYPE_CHECKING:
    from sparrow.embedding.dynamic.new_rows import NewRows

T = TypeVar("T")


def staged(
    host: HostTables,
    steps: Iterable[T],
    ids_of: Callable[[T], Sequence[IdsOf]],
    new_of: Callable[[T], Sequence[Mapping[str, NewRows]]] = lambda step: (),
) -> Generator[tuple[T, Swap], None, None]:
    """Yield each step with its swap; the entries of its batches are slots then.

    ``ids_of(step)`` returns the entries of its batches by stack, which are read and then overwritten; ``new_of(step)``
    returns the rows of dynamic tables that start fresh, by batch and table. A step is yielded once ``host.lookahead``
    further steps are known, or the last one is.
    """
    window: deque[T] = deque()
    for step in steps:
        host.see(ids_of(step))
        window.append(step)
        del step
        if len(window) > host.lookahead:
            oldest = window.popleft()
            yield oldest, host.stage(ids_of(oldest), new_of(oldest))
            del oldest
    while window:
        oldest = window.popleft()
        yield oldest, host.stage(ids_of(oldest), new_of(oldest))
        del oldest
