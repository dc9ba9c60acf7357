"""Work on the next items of data in a background thread."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from sparrow import background
from sparrow.background import Until, forever
from sparrow.data.crew import NAME, join

T = TypeVar("T")


def prefetch(
    items: Callable[[], Generator[T, None, None]], ahead: int, wait: Callable[[Until], None] = forever
) -> Generator[T, None, None]:
    """Yield the items of ``items()`` as `sparrow.background.prefetch` does; a thread that does not end gets a warning.

    >>> list(prefetch(lambda: (n for n in range(3)), ahead=2))
    [0, 1, 2]
    """
    return background.prefetch(items, ahead, name=NAME, end=lambda thread, _: join([thread]), wait=wait)
