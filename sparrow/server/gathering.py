"""`Gatherer`: requests that arrive together, handed to one thread in batches."""

from __future__ import annotations

import asyncio
import collections
import threading
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, Generic, TypeVar

from sparrow.server.limits import Refused, deliver

T = TypeVar("T")
R = TypeVar("R")

MOST_REQUESTS: Final = 256
"""Requests that are handed over at a time."""


class Gatherer(Generic[T, R]):
    """A queue in front of one thread, which answers all requests that wait when it becomes free.

    A batch begins as soon as the thread is free and no other request is being received; at the latest
    ``gather_seconds`` after its oldest request came.
    """

    def __init__(
        self, answer: Callable[[Sequence[T]], Sequence[R | Exception]], *, gather_seconds: float, most_waiting: int
    ) -> None:
        """Start the thread.

        Args:
          answer: returns a result, or an error, for each of the requests.
          gather_seconds: the longest wait for requests that are being received.
          most_waiting: further requests are refused with 503.
        """
        self._answer, self._gather_seconds, self._most_waiting = answer, gather_seconds, most_waiting
        self._waiting: collections.deque[tuple[T, float, asyncio.Future[R]]] = collections.deque()
        self._changed = threading.Condition()
        self._receiving = 0
        self._stopped = False
        self._jobs: collections.deque[tuple[Callable[[], None], threading.Event]] = collections.deque()
        self._thread = threading.Thread(target=self._run, name="sparrow-model", daemon=True)
        self._thread.start()

    def receiving(self, change: int) -> None:
        """Count a request that is being received: 1 when it begins, -1 when it ends without being queued."""
        with self._changed:
            self._receiving += change
            if change < 0:
                self._changed.notify()

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return len(self._waiting)

    async def result(self, request: T) -> R:
        """Return the answer to a request that was counted by `receiving`, or raise its error."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._receiving -= 1
            if len(self._waiting) >= self._most_waiting or self._stopped:
                self._changed.notify()
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests wait already; try again later")
            self._waiting.append((request, time.monotonic(), future))
            self._changed.notify()
        return await future

    def between(self, job: Callable[[], None]) -> None:
        """Run a job in the thread between two batches, and wait for its end."""
        done = threading.Event()
        with self._changed:
            if self._stopped:
                return
            self._jobs.append((job, done))
            self._changed.notify()
        done.wait()

    def stop(self) -> None:
        """End the thread, after the batch that it computes."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()
        for _, done in self._jobs:
            done.set()

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            while self._jobs:
                self._work(*self._jobs.popleft())
            requests = [request for request, _, future in taken if not future.cancelled()]
            futures = [future for _, _, future in taken if not future.cancelled()]
            try:
                results = self._answer(requests) if requests else ()
            except Exception as error:
                results = [error] * len(requests)
            if futures:
                futures[0].get_loop().call_soon_threadsafe(_deliver, futures, results)

    @staticmethod
    def _work(job: Callable[[], None], done: threading.Event) -> None:
        try:
            job()
        finally:
            done.set()

    def _next(self) -> list[tuple[T, float, asyncio.Future[R]]] | None:
        with self._changed:
            while not self._waiting and not self._stopped and not self._jobs:
                self._changed.wait()
            if self._stopped:
                return None
            if self._jobs:
                return []
            while self._receiving and len(self._waiting) < MOST_REQUESTS and not self._stopped:
                left = self._waiting[0][1] + self._gather_seconds - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            return [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_REQUESTS))]


def _deliver(futures: Sequence[asyncio.Future[R]], results: Sequence[R | Exception]) -> None:
    for future, result in zip(futures, results, strict=True):
        deliver(future, result)
