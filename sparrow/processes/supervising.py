"""The processes of one machine, started, watched and ended together."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, Protocol

from sparrow.processes.failing import ELSEWHERE

PATIENCE: Final = 20.0
"""Seconds that the others have to end after one process has failed."""
STOPPED: Final = 10.0
"""Seconds that a process may be stopped by a signal: less than `HEARTBEAT`, after which JAX aborts all the others."""
FAILED: Final = 1
"""The exit code where all processes ended because of each other."""
SHOWN: Final = 20
"""Lines of a failed process that are shown."""


class Started(Protocol):
    """A process that was started."""

    handle: subprocess.Popen[Any]


class Child:
    """One process: its number, its handle, and a file with its errors."""

    def __init__(
        self, number: int, command: Sequence[str], environment: dict[str, str], descriptors: tuple[int, ...]
    ) -> None:
        self.number = number
        self._stopped: float | None = None  # since when
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        first = number == 0
        self.handle = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # closed when the supervisor ends, also by SIGKILL
            stdout=None if first else subprocess.DEVNULL,
            stderr=None if first else self.errors,
            env=environment,
            pass_fds=descriptors,
            start_new_session=True,  # Ctrl-C reaches the supervisor alone, which passes it on
        )

    def is_stopped(self) -> bool:
        """Return whether it has been stopped by a signal, such as SIGSTOP, for `STOPPED` seconds."""
        now = time.monotonic()
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.handle.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None:
                self._stopped = now if self._stopped is None else self._stopped
                return now - self._stopped >= STOPPED
        self._stopped = None
        return False

    def failure(self) -> str:
        """Return what became of it, in one line."""
        code = self.handle.returncode
        if code is None:
            return f"process {self.number} was stopped by a signal for {STOPPED:g} s"
        if code is not None and code < 0:
            return f"process {self.number} was ended by {signal.Signals(-code).name}"
        return f"process {self.number} ended with code {code}"

    def last_lines(self) -> list[str]:
        self.errors.seek(0)
        return self.errors.read().decode("utf-8", "replace").splitlines()[-SHOWN:]


@dataclasses.dataclass(frozen=True)
class Start:
    """One process to start.

    Attributes:
      address: the address of the first one.
      number: its own number.
      count: the number of all.
      resumes: whether it begins again, from a checkpoint.
      progress: the file descriptor for `tell_progress`; -1 where this is not the first one.
    """

    address: str
    number: int
    count: int
    resumes: bool
    progress: int


def run_once(
    children: list[Child],
    count: int,
    command: Callable[[Start], Sequence[str]],
    resumes: bool,
    progress: int,
    watched: Callable[[], bool],
    log: Callable[[str], None],
) -> tuple[int, float]:
    """Run ``count`` processes to their end; when one fails, end all. Return the exit code, and the time of it.

    Args:
      children: receives the processes.
      count: the number of them.
      command: the command of a process.
      resumes: whether they begin again, from a checkpoint.
      progress: a file descriptor for the first process.
      watched: is called often while they run, until it returns True.
      log: receives the lines of a failure.
    """
    address = f"127.0.0.1:{free_port()}"
    devices = _device_lists(count)
    children.clear()
    try:
        for number in range(count):
            environment = {**os.environ, **({} if devices is None else {"CUDA_VISIBLE_DEVICES": devices[number]})}
            start = Start(address, number, count, resumes, -1 if number else progress)
            children.append(Child(number, command(start), environment, () if number else (progress,)))
        failed, at = _first_failure(children, watched), time.time()
        if failed is None:
            return 0, at
        if failed.handle.returncode is not None:  # the others end by themselves, unless they wait for a stopped one
            _wait(children, time.monotonic() + PATIENCE)
        return _shown(_culprit(failed, children), log), at
    finally:
        for child in children:
            if child.handle.poll() is None:
                child.handle.kill()
                child.handle.wait()


def free_port() -> int:
    """Return a port of the loopback interface that is free now."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


def _first_failure(children: Sequence[Child], watched: Callable[[], bool]) -> Child | None:
    """Wait until one fails or is stopped, and return it; or None once all have ended well."""
    is_back = False
    while True:
        is_back = is_back or watched()
        codes = {child.number: child.handle.poll() for child in children}
        for child in children:
            if codes[child.number] not in (None, 0) or (codes[child.number] is None and child.is_stopped()):
                return child
        if all(code == 0 for code in codes.values()):
            return None
        time.sleep(0.1)


def _wait(children: Sequence[Child], deadline: float) -> None:
    while any(child.handle.poll() is None for child in children) and time.monotonic() < deadline:
        time.sleep(0.1)


def _culprit(first: Child, children: Sequence[Child]) -> Child:
    """Return the process to blame: the first that failed, unless it ended because of another."""
    if first.handle.returncode != ELSEWHERE:
        return first
    own = [child for child in children if child.handle.poll() not in (None, 0, ELSEWHERE)]
    told = [child for child in children if child.handle.poll() == ELSEWHERE]  # all know the cause, such as unequal data
    return (own or told)[0]


def _shown(culprit: Child, log: Callable[[str], None]) -> int:
    code = culprit.handle.returncode
    for line in culprit.last_lines():
        log(line)
    if code is None:
        log(f"{culprit.failure()}; all processes were ended")
        return FAILED
    if code < 0 or culprit.number:
        log(f"{culprit.failure()}; all {'others' if code < 0 else 'processes'} were ended")
    return 128 - code if code < 0 else FAILED if code == ELSEWHERE else code


@contextlib.contextmanager
def passed_on(children: Sequence[Started]) -> Iterator[list[int]]:
    """Pass Ctrl-C and SIGTERM on to the processes, which finish their work and end; give a list of those received."""
    received: list[int] = []

    def send(number: int, frame: FrameType | None) -> Any:
        received.append(number)
        for child in children:
            if child.handle.poll() is None:
                child.handle.send_signal(number)

    before = {number: signal.signal(number, send) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _device_lists(count: int) -> list[str] | None:
    """Return the GPUs of each process, as CUDA_VISIBLE_DEVICES lists them; None where there are too few or none."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = given.split(",") if given else [str(i) for i in range(len(_entries("/proc/driver/nvidia/gpus")))]
    each = len([name for name in names if name]) // count
    return [",".join(names[number * each : (number + 1) * each]) for number in range(count)] if each else None


def _entries(folder: str) -> list[str]:
    return os.listdir(folder) if Path(folder).is_dir() else []


def end_with_parent() -> None:
    """Start a thread that ends this process when its standard input is closed: its supervisor is gone."""
    import threading

    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 1024):
                pass
        os._exit(ELSEWHERE)

    threading.Thread(target=wait, name="sparrow-parent", daemon=True).start()
