"""Work on the next items in a background thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from sparrow.data.crew import NAME, join

T = TypeVar("T")


def _forever(until: Callable[[float], bool]) -> None:
    while not until(60.0):
        pass


def prefetch(
    items: Callable[[], Generator[T, None, None]],
    ahead: int,
    wait: Callable[[Callable[[float], bool]], None] = _forever,
) -> Generator[T, None, None]:
    """Yield the items of ``items()``, in the same order, made up to ``ahead`` items early by a separate thread.

    An exception arrives where its item would have. Closing the iterator ends the thread, after the current item.
    ``wait(until)`` waits until ``until(seconds)`` is true, and may raise instead.

    >>> list(prefetch(lambda: (n for n in range(3)), ahead=2))
    [0, 1, 2]
    """
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()
    room = threading.Semaphore(ahead)
    stop = threading.Event()

    def work() -> None:
        iterator = items()
        try:
            for item in iterator:
                room.acquire()
                if stop.is_set():
                    return
                made.put((item, None))
            made.put((None, StopIteration()))
        except BaseException as error:  # the waiting thread must see every error
            made.put((None, error))
        finally:
            iterator.close()

    entry: tuple[Any, BaseException | None] = (None, None)

    def arrived(seconds: float) -> bool:
        nonlocal entry
        try:
            entry = made.get(seconds > 0, seconds)
        except queue.Empty:
            return False
        return True

    thread = threading.Thread(target=work, name=NAME, daemon=True)
    thread.start()
    try:
        while True:
            wait(arrived)
            item, error = entry
            entry = (None, None)
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            room.release()
            yield item
            del item
    finally:
        stop.set()
        room.release()  # a thread that waits for room then sees the stop at once
        join([thread])
