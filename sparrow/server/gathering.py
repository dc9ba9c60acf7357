"""`Gatherer`: requests that arrive together are computed in batches, in the event loop or by one thread."""

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
"""Requests that are computed at a time."""
TURNS: Final = 2
"""Turns of the event loop in which further requests may join a batch that is computed there."""
QUICK_SECONDS: Final = 0.01
SLOW_SECONDS: Final = 5.0
"""After a batch of more than QUICK_SECONDS of the process's processor time in the event loop, the thread computes all
for SLOW_SECONDS. By the clock, a machine that is busy with others would make every batch a slow one."""


_Waiting = tuple[T, float, "asyncio.Future[R]"]


class Gatherer(Generic[T, R]):
    """A queue in front of a model, which answers all requests that wait when it becomes free.

    Quick requests are computed in the event loop: a thread beside it would take the interpreter's lock in turns with
    it, and both would wait. Others, and all of them for a while after a batch that was not quick, go to one thread. A
    batch there begins as soon as no other request is being received; at the latest ``gather_seconds`` after its oldest
    request came.
    """

    def __init__(
        self,
        answer: Callable[[Sequence[T]], Sequence[R | Exception]],
        *,
        gather_seconds: float,
        most_waiting: int,
        is_quick: Callable[[T], bool] = lambda request: False,
    ) -> None:
        """Start the thread.

        Args:
          answer: returns a result, or an error, for each of the requests.
          gather_seconds: the longest wait for requests that are being received.
          most_waiting: further requests are refused with 503.
          is_quick: whether a request takes little time, as far as can be told before.
        """
        self._answer, self._gather_seconds, self._most_waiting = answer, gather_seconds, most_waiting
        self._is_quick = is_quick
        self._waiting: collections.deque[_Waiting[T, R]] = collections.deque()
        self._changed = threading.Condition()
        self._computing = threading.Lock()
        self._receiving = 0
        self._is_planned = self._is_handed_over = self._stopped = False
        self._slow_until = 0.0
        self._jobs: collections.deque[tuple[Callable[[], None], threading.Event]] = collections.deque()
        self._thread = threading.Thread(target=self._run, name="sparrow-model", daemon=True)
        self._thread.start()

    def receiving(self, change: int) -> None:
        """Count a request that is being received: 1 when it begins, -1 when it ends without being queued."""
        with self._changed:
            self._receiving += change
            if change < 0:
                self._wake()

    def _wake(self) -> None:
        """Wake the thread where there is something for it; else it would only take the interpreter's lock."""
        if self._is_handed_over:
            self._changed.notify()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def result(self, request: T) -> R:
        """Return the answer to a request that was counted by `receiving`, or raise its error."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        with self._changed:
            self._receiving -= 1
            if len(self._waiting) >= self._most_waiting or self._stopped:
                self._wake()
                raise Refused("too many requests wait already; try again later", HTTPStatus.SERVICE_UNAVAILABLE)
            self._waiting.append((request, time.monotonic(), future))
            self._is_handed_over |= not self._is_quick(request)
            self._wake()
        if not self._is_planned:
            self._is_planned = True
            loop.call_soon(self._compute_now, TURNS)
        return await future

    def _compute_now(self, turns: int) -> None:
        """Compute what waits in the event loop, after some turns of it in which further requests come; or hand over."""
        if self._receiving and turns:
            asyncio.get_running_loop().call_soon(self._compute_now, turns - 1)
            return
        self._is_planned = False
        if self._is_handed_over or time.monotonic() < self._slow_until or not self._computing.acquire(blocking=False):
            with self._changed:
                self._is_handed_over = True
                self._changed.notify()
            return
        began = time.process_time()
        try:
            with self._changed:
                taken = self._take()
            _deliver(*self._answered(taken))
        finally:
            self._computing.release()
        if time.process_time() - began > QUICK_SECONDS:
            self._slow_until = time.monotonic() + SLOW_SECONDS
        if self._waiting:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._compute_now, 0)

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
            with self._computing:
                while self._jobs:
                    job, done = self._jobs.popleft()
                    try:
                        job()
                    finally:
                        done.set()
                futures, results = self._answered(taken)
            if futures:
                futures[0].get_loop().call_soon_threadsafe(_deliver, futures, results)

    def _answered(self, taken: Sequence[_Waiting[T, R]]) -> tuple[list[asyncio.Future[R]], Sequence[R | Exception]]:
        """Return the futures of requests whose clients still wait, and their results."""
        requests = [request for request, _, future in taken if not future.cancelled()]
        futures = [future for _, _, future in taken if not future.cancelled()]
        try:
            return futures, self._answer(requests) if requests else ()
        except Exception as error:
            return futures, [error] * len(requests)

    def _next(self) -> list[_Waiting[T, R]] | None:
        with self._changed:
            while not (self._waiting and self._is_handed_over) and not self._stopped and not self._jobs:
                self._changed.wait()
            if self._stopped:
                return None
            if self._jobs:
                return []
            while self._receiving and len(self._waiting) < MOST_REQUESTS and not self._stopped:
                left = self._waiting[0][1] + self._gather_seconds - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            return self._take()

    def _take(self) -> list[_Waiting[T, R]]:
        taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_REQUESTS))]
        self._is_handed_over = any(not self._is_quick(request) for request, _, _ in self._waiting)
        return taken


def _deliver(futures: Sequence[asyncio.Future[R]], results: Sequence[R | Exception]) -> None:
    for future, result in zip(futures, results, strict=True):
        deliver(future, result)
