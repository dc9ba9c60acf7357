"""`prefetch`: work on the next items in a background thread."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

Until = Callable[[float], bool]
"""Waits up to a number of seconds, and returns whether the awaited thing happened."""


def forever(until: Until) -> None:
    """Wait without a limit."""
    while not until(60.0):
        pass


def prefetch(
    items: Callable[[], Generator[T, None, None]],
    ahead: int,
    *,
    name: str,
    end: Callable[[threading.Thread, bool], None],
    wait: Callable[[Until], None] = forever,
) -> Generator[T, None, None]:
    """Yield the items of ``items()``, in the same order, made up to ``ahead`` items early by a separate thread.

    An exception arrives where its item would have. Closing the iterator ends the thread, after the current item.

    Args:
      items: makes the items.
      ahead: the most items that wait to be taken.
      name: the name of the thread.
      end: called at the end, with the thread and whether all items were taken; waits for the thread.
      wait: ``wait(until)`` waits until ``until(seconds)`` is true, and may raise instead.

    >>> list(prefetch(lambda: (n for n in range(3)), 2, name="numbers", end=lambda thread, _: thread.join()))
    [0, 1, 2]
    """
    made: queue.SimpleQueue[Any] = queue.SimpleQueue()
    slots = threading.Semaphore(ahead)
    stop = threading.Event()

    def work() -> None:
        iterator = items()
        try:
            for item in iterator:
                slots.acquire()
                if stop.is_set():
                    return
                made.put((item, None))
                del item
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

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    is_done = False
    try:
        while True:
            wait(arrived)
            item, error = entry
            entry = (None, None)
            if isinstance(error, StopIteration):
                is_done = True
                return
            if error is not None:
                raise error
            slots.release()
            yield item
            del item
    finally:
        stop.set()
        slots.release()  # a thread that waits for a slot then sees the stop at once
        end(thread, is_done)


def behind(items: Iterable[T], count: int) -> Iterator[T]:
    """Yield each item once ``count`` more have been made: work that was started for them goes on meanwhile.

    >>> def made():
    ...     for number in range(3):
    ...         print("start", number)
    ...         yield number
    >>> for number in behind(made(), 1):
    ...     print("finish", number)
    start 0
    start 1
    finish 0
    start 2
    finish 1
    finish 2
    """
    waiting: deque[T] = deque()
    for item in items:
        waiting.append(item)
        if len(waiting) > count:
            yield waiting.popleft()
    while waiting:
        yield waiting.popleft()
