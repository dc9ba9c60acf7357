"""`supervised`: several processes that serve one export on one port; one that ends is started again."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from sparrow.data import DataError
from sparrow.processes import passed_on

METRICS: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The variable that names the folder in which prometheus-client adds the numbers of all workers up."""
LONGEST_PAUSE: Final = 30.0
"""The most seconds between the end of a worker and its new start; the first pause is 1 s, each next one twice it."""

Log = Callable[[str], None]


class _Worker:
    """One process: its number, and since when it is ready."""

    def __init__(self, number: int, command: Sequence[str], folder: str, events: queue.SimpleQueue[Any]) -> None:
        self.number, self.is_ready = number, False
        self.handle = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closed when the supervisor ends, also by SIGKILL: workers end then
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, METRICS: folder},
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which passes it on
        )
        threading.Thread(target=self._read, args=(events,), name=f"sparrow-worker-{number}", daemon=True).start()

    def _read(self, events: queue.SimpleQueue[Any]) -> None:
        assert self.handle.stderr is not None
        for line in self.handle.stderr:
            events.put((self, line.rstrip("\n")))
        self.handle.wait()
        events.put((self, None))


def supervised(count: int, host: str, port: int, command: Callable[[int], Sequence[str]], log: Log) -> int:
    """Serve by ``count`` processes until SIGINT or SIGTERM. Return the exit code.

    Each listens on the same port by SO_REUSEPORT, and the kernel deals connections to them. A worker that ends is
    started again; where one ends before any is ready, all do. Tables and vectors are mapped from the same files.

    Args:
      count: the number of workers.
      host: the address to listen on.
      port: the port; 0 chooses a free one.
      command: returns the command of a worker, from the port.
      log: receives the lines of the workers, and of their ends.
    """
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with _held(host, port) as chosen, tempfile.TemporaryDirectory(prefix="sparrow-serve-") as folder:
        workers = [_Worker(number, command(chosen), folder, events) for number in range(count)]
        with passed_on(workers) as stopping:
            try:
                started = functools.partial(_Worker, command=command(chosen), folder=folder, events=events)
                return _watched(workers, events, stopping, started, lambda pid: _forget(pid, folder), log)
            finally:
                for worker in workers:
                    if worker.handle.poll() is None:
                        worker.handle.kill()
                    worker.handle.wait()


def _watched(
    workers: list[_Worker],
    events: queue.SimpleQueue[Any],
    stopping: Sequence[int],
    start: Callable[[int], _Worker],
    forget: Callable[[int], None],
    log: Log,
) -> int:
    was_ready, ends, later = False, [0] * len(workers), dict[int, float]()
    while True:
        for number in [number for number, when in later.items() if when <= time.monotonic() and not stopping]:
            del later[number]
            workers[number] = start(number)
        try:
            worker, line = events.get(timeout=0.1)
        except queue.Empty:
            if stopping and all(worker.handle.poll() is not None for worker in workers):
                return max(abs(int(worker.handle.returncode)) for worker in workers)
            continue
        if line is not None:
            if line.startswith("serving "):
                worker.is_ready, ends[worker.number] = True, 0
                if not was_ready and all(each.is_ready for each in workers):
                    was_ready = True
                    log(line.replace("serving ", f"{len(workers)} workers are serving ", 1))
                elif was_ready:
                    log(f"worker {worker.number} is ready again")
            else:
                log(f"worker {worker.number}: {line}")
            continue
        code: int = worker.handle.returncode
        forget(worker.handle.pid)
        if stopping:
            continue
        if not was_ready:
            return code if code > 0 else 1
        how = signal.Signals(-code).name if code < 0 else f"code {code}"
        pause = min(2.0 ** ends[worker.number], LONGEST_PAUSE)
        ends[worker.number] += 1
        later[worker.number] = time.monotonic() + pause
        log(f"worker {worker.number} ended by {how}; it is started again in {pause:g} s")


def _forget(pid: int, folder: str) -> None:
    """Leave the present numbers of a worker that ended out of the sums; its counts stay."""
    from prometheus_client import multiprocess

    with contextlib.suppress(OSError, ValueError):
        multiprocess.mark_process_dead(pid, folder)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _held(host: str, port: int) -> Iterator[int]:
    """Hold a port that workers may share, without listening on it, and yield its number."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(address)
            yield int(held.getsockname()[1])
    except OSError as error:
        raise DataError(f"cannot listen there: {error.strerror or error}", f"{host}:{port}") from None
