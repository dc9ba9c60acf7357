"""`Crew`: a few threads that do jobs, in the order in which they were given."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, cast

T = TypeVar("T")

NAME: Final = "sparrow-data"
"""The threads' names begin with it."""
PATIENCE: Final = 3.0
"""Seconds that closing waits for a running job."""


def default_threads() -> int:
    """Return the cores that this process may use, less two for the loop and the device; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(cores - 2, 1)


class Dropped(Exception):
    """Raised for a job that was dropped."""


class Job(Generic[T]):
    """Work for a crew, and its result, or its ``error``."""

    __slots__ = ("_done", "_run", "_value", "error")

    def __init__(self, run: Callable[[], T]) -> None:
        self._run: Callable[[], T] | None = run
        self._done = threading.Lock()
        self._done.acquire()
        self._value: T | None = None
        self.error: BaseException | None = None

    def work(self) -> None:
        assert self._run is not None
        try:
            self._value = self._run()
        except BaseException as error:  # the waiting thread must see every error
            self.error = error
        self._run = None  # frees all that it holds
        self._done.release()

    def drop(self) -> None:
        """Drop the job; waiting for it raises `Dropped`."""
        self.error, self._run = Dropped(), None
        self._done.release()

    def wait(self, seconds: float = -1) -> bool:
        """Wait until it is done; return whether it is. Without ``seconds``, wait without a limit."""
        if not (self._done.acquire(timeout=seconds) if seconds else self._done.acquire(blocking=False)):
            return False
        self._done.release()
        return True

    def result(self) -> T:
        """Return the result, or raise the error of the job."""
        self.wait()
        if self.error is not None:
            raise self.error
        return cast("T", self._value)


class Crew:
    """Threads that run jobs, urgent ones first. Closing it drops jobs that have not begun.

    A job may wait for another that is urgent and was given before it: some thread is at work on that one.
    """

    def __init__(self, threads: int) -> None:
        self.size = threads
        self._given: queue.SimpleQueue[None] = queue.SimpleQueue()  # an entry per job
        self._urgent: deque[Job[Any]] = deque()
        self._others: deque[Job[Any]] = deque()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"{NAME}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def do(self, run: Callable[[], T], urgent: bool = True) -> Job[T]:
        job = Job(run)
        (self._urgent if urgent else self._others).append(job)
        self._given.put(None)
        if self._closed:
            self._drop_all()
        return job

    def help(self) -> bool:
        """Do an urgent job that no thread has begun, in the calling thread; return whether there was one.

        An interrupt that comes meanwhile is raised here: others may take the job's result much later.
        """
        try:
            job = self._urgent.popleft()
        except IndexError:
            return False
        job.work()
        if isinstance(job.error, KeyboardInterrupt):
            raise job.error
        return True

    @property
    def is_closed(self) -> bool:
        """Return whether no further job is begun."""
        return self._closed

    def stop(self) -> None:
        """Begin no further job, and drop the waiting ones."""
        self._closed = True
        self._drop_all()
        for _ in self._threads:
            self._given.put(None)

    def close(self) -> None:
        """End the threads. One that does not end is left behind, with a warning: it cannot be stopped."""
        self.stop()
        join(self._threads)

    def _drop_all(self) -> None:
        for jobs in (self._urgent, self._others):
            while jobs:
                with contextlib.suppress(IndexError):  # a thread was quicker
                    jobs.popleft().drop()

    def _work(self) -> None:
        while True:
            self._given.get()
            if self._closed:
                return
            for jobs in (self._urgent, self._others):
                with contextlib.suppress(IndexError):
                    jobs.popleft().work()
                    break


def do(crew: Crew | None, run: Callable[[], T], urgent: bool = True) -> Job[T]:
    """Call ``run`` in a crew, or here without one."""
    if crew is not None:
        return crew.do(run, urgent)
    job = Job(run)
    job.work()
    return job


def join(threads: list[threading.Thread]) -> None:
    """Wait for threads that are about to end."""
    end = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0.001))
    if stuck := [thread.name for thread in threads if thread.is_alive()]:
        warnings.warn(f"reading data does not end: {', '.join(stuck)} left behind", RuntimeWarning, stacklevel=2)
