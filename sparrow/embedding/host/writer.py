"""`Writer`: a thread that stores rows which left the device, and the last step whose rows are home."""

from __future__ import annotations

import atexit
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import jax

from sparrow.embedding.host.planner import Ids
from sparrow.embedding.host.rows import HostRows
from sparrow.embedding.host.transfer import on_host

MOST: Final = 8
"""Steps whose rows may be on their way: a bound on the memory that they take."""


class Outgoing(NamedTuple):
    """The rows of one step that leave the device, by stack."""

    step: int
    rows: dict[str, Ids]
    values: dict[str, dict[str, jax.Array]]


class Closed(RuntimeError):
    """Raised to a thread that waits for rows when the run has ended."""


class Writer:
    """Stores rows in the order of steps.

    Attributes:
      landed: the last step whose outgoing rows are in host memory; -1: none.
      delay: called before each step is stored: tests make the writer slow with it.
    """

    def __init__(self, rows: Mapping[str, HostRows]) -> None:
        self._rows = rows
        self.landed = -1
        self.delay: Callable[[], None] = lambda: None
        self._changed = threading.Condition()
        self._waiting: deque[Outgoing] = deque()
        self._error: Exception | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="sparrow-host-writer", daemon=True)
        self._thread.start()
        atexit.register(self._end)  # a thread that is storing rows when the interpreter ends would abort the process

    def put(self, outgoing: Outgoing) -> None:
        """Store the rows of a step, later; wait while too many are on their way."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < MOST or self._error is not None)
            self._raise()
            self._waiting.append(outgoing)
            self._changed.notify_all()

    def wait_for(self, step: int) -> float:
        """Wait until the rows that left before ``step`` are home. Return the seconds waited."""
        if self.landed >= step and self._error is None:
            return 0.0
        began = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: self.landed >= step or self._error is not None or self._is_closed)
            self._raise()
            if self.landed < step:
                raise Closed
        return time.perf_counter() - began

    def drain(self) -> None:
        """Wait until all rows are home."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting or self._error is not None)
            self._raise()

    def close(self) -> None:
        """End the thread, after the rows that are on their way."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _end(self) -> None:
        self.close()
        self._thread.join()

    def _raise(self) -> None:
        if self._error is not None:
            raise RuntimeError(f"rows could not be stored in host memory: {self._error}") from self._error

    def _work(self) -> None:
        try:
            self._store()
        finally:
            atexit.unregister(self._end)

    def _store(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                outgoing = self._waiting[0]
            try:
                self.delay()
                for stack, rows in outgoing.rows.items():
                    values = {name: on_host(array) for name, array in outgoing.values[stack].items()}
                    self._rows[stack].scatter(rows, values)
                    del values
            except Exception as error:
                self._error = error
            with self._changed:
                self._waiting.popleft()
                if self._error is None:
                    self.landed = outgoing.step
                self._changed.notify_all()
                if self._error is not None:
                    return
