"""Doing the next items' work in a background thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def prefetch(items: Callable[[], Generator[T, None, None]], ahead: int) -> Generator[T, None, None]:
    """Yields what ``items()`` yields, in the same order, made up to ``ahead`` items early by a thread of its own.

    An exception arrives where its item would have. Closing the iterator ends the thread, after the item in work.

    >>> list(prefetch(lambda: (n for n in range(3)), ahead=2))
    [0, 1, 2]
    """
    made: queue.Queue[Any] = queue.Queue(ahead)
    stop = threading.Event()

    def put(entry: Any) -> None:
        while not stop.is_set():
            try:
                return made.put(entry, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        iterator = items()
        try:
            for item in iterator:
                put((item, None))
                if stop.is_set():
                    return
            put((None, StopIteration()))
        except BaseException as error:  # whatever it is, the thread that waits must see it
            put((None, error))
        finally:
            iterator.close()

    thread = threading.Thread(target=work, name="sparrow-data", daemon=True)
    thread.start()
    try:
        while True:
            item, error = made.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item
    finally:
        stop.set()
        while not made.empty():  # lets a thread that waits for room see the stop at once
            made.get_nowait()
        thread.join()
