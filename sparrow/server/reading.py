"""`Readers`: threads that read the bodies of requests, with a limit of processor time that holds."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import queue
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final, Generic, NamedTuple, TypeVar

from sparrow.files import give_back
from sparrow.server.limits import Refused, deliver

R = TypeVar("R")

THREADS: Final = 4
"""Bodies that are read at a time: a long one leaves others for short ones."""
LOST: Final = 4
"""The most threads that were replaced and have not ended yet; beyond them none is replaced, and requests wait."""

FREE_SECONDS: Final = 5.0
FREE_BYTES: Final = 16 << 20
"""The time, and the bytes of bodies, after which freed memory goes back to the system: others wait meanwhile."""


class _Job(NamedTuple, Generic[R]):
    work: Callable[[], R]
    future: asyncio.Future[R]
    loop: asyncio.AbstractEventLoop

    def end(self, result: Any) -> None:
        self.loop.call_soon_threadsafe(deliver, self.future, result)


class Readers:
    """Some threads, each with one body at a time. A body that takes too long is refused, and its thread replaced.

    Python has no way to end a thread that is in a call of compiled code. Such calls take time that grows linearly with
    the body, so the size of bodies bounds them; everything else ends at its next step.
    """

    def __init__(self, *, seconds: float, most_waiting: int) -> None:
        """Start the threads.

        Args:
          seconds: the processor time of one body.
          most_waiting: further bodies are refused with 503.
        """
        self._seconds, self._most_waiting = seconds, most_waiting
        self._jobs: queue.SimpleQueue[_Job[Any] | None] = queue.SimpleQueue()
        self._readers = [_Reader(self._jobs) for _ in range(THREADS)]
        self._lost: list[_Reader] = []
        self._stopped = threading.Event()
        self._has_read = 0  # bytes since memory was given back
        self._watch = threading.Thread(target=self._run, name="sparrow-watch", daemon=True)
        self._watch.start()

    async def result(self, work: Callable[[], R], size: int = 0) -> R:
        """Return the result of ``work()`` on ``size`` bytes, computed in one of the threads, or raise its error."""
        if self._jobs.qsize() >= self._most_waiting:
            raise Refused("too many requests wait already; try again later", HTTPStatus.SERVICE_UNAVAILABLE)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._jobs.put(_Job(work, future, loop))
        self._has_read += size
        return await future

    def stop(self) -> None:
        """End the threads, after the bodies that they read."""
        self._stopped.set()
        self._watch.join()
        for _ in self._readers:
            self._jobs.put(None)
        for reader in self._readers:
            reader.join(self._seconds)

    def _run(self) -> None:
        freed = time.monotonic()
        while not self._stopped.wait(self._seconds / 4):
            if self._has_read >= FREE_BYTES and time.monotonic() - freed > FREE_SECONDS:
                self._has_read = 0
                give_back()
                freed = time.monotonic()
            self._lost = [reader for reader in self._lost if reader.is_alive()]
            for reader in self._lost:
                reader.interrupt()  # again: what frees memory may have swallowed the first one
            for place, reader in enumerate(self._readers):
                if len(self._lost) < LOST and (job := reader.lose(self._seconds)):
                    self._lost.append(reader)
                    self._readers[place] = _Reader(self._jobs)
                    why = f"reading the body takes more than {self._seconds:g} s; send fewer rows, and shorter ones"
                    job.end(Refused(why, HTTPStatus.REQUEST_ENTITY_TOO_LARGE))


class _Overrun(BaseException):
    """Raised in a thread that was replaced."""


class _Reader(threading.Thread):
    """A thread that does one job after the other, until it is lost."""

    def __init__(self, jobs: queue.SimpleQueue[_Job[Any] | None]) -> None:
        super().__init__(name="sparrow-read", daemon=True)
        self._jobs = jobs
        self._lock = threading.Lock()  # of the fields below
        self._job: _Job[Any] | None = None
        self._began, self._is_lost = 0.0, False
        self._now: Callable[[], float] = time.monotonic  # where a thread's processor time is not known to others
        self.start()

    def run(self) -> None:
        """Work until there is a None instead of a job."""
        if hasattr(time, "pthread_getcpuclockid"):
            clock = time.pthread_getcpuclockid(threading.get_ident())
            self._now = lambda: time.clock_gettime(clock)
        try:
            while (job := self._jobs.get()) is not None:
                if job.future.cancelled():
                    continue
                with self._lock:
                    self._began, self._job = self._now(), job
                try:
                    result: Any = job.work()
                except Exception as error:
                    result = error
                with self._lock:
                    self._job = None
                    if self._is_lost:
                        return
                job.end(result)
        except _Overrun:
            pass

    def lose(self, seconds: float) -> _Job[Any] | None:
        """Interrupt a job that has taken more than ``seconds``, and return it; the thread takes no further one."""
        with self._lock:
            if self._job is None or self._now() - self._began <= seconds:
                return None
            self._is_lost = True
            self.interrupt()
            return self._job

    def interrupt(self) -> None:
        """Raise `_Overrun` in the thread at its next step of Python."""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self.ident or 0), ctypes.py_object(_Overrun))


def settle() -> None:
    """Leave all that lives now, such as a model, out of later collections of garbage: each would take 0.1 s or more."""
    gc.unfreeze()  # of a model that was replaced, cycles are left
    gc.collect()
    gc.freeze()
    give_back()
