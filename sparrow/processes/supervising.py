"""`supervise`: the processes of one machine, started, watched and ended together; and begun again where one is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final, NamedTuple, Protocol

from sparrow.processes.talking import ELSEWHERE

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
        if code < 0:
            return f"process {self.number} was ended by {signal.Signals(-code).name}"
        return f"process {self.number} ended with code {code}"


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

    ``children`` receives the processes. ``watched`` is called often while they run, until it returns True.
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
            deadline = time.monotonic() + PATIENCE
            while any(child.handle.poll() is None for child in children) and time.monotonic() < deadline:
                time.sleep(0.1)
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


def _culprit(first: Child, children: Sequence[Child]) -> Child:
    """Return the process to blame: the first that failed, unless it ended because of another."""
    if first.handle.returncode != ELSEWHERE:
        return first
    own = [child for child in children if child.handle.poll() not in (None, 0, ELSEWHERE)]
    told = [child for child in children if child.handle.poll() == ELSEWHERE]  # all know the cause, such as unequal data
    return (own or told)[0]


def _shown(culprit: Child, log: Callable[[str], None]) -> int:
    code = culprit.handle.returncode
    culprit.errors.seek(0)
    for line in culprit.errors.read().decode("utf-8", "replace").splitlines()[-SHOWN:]:
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
    names = given.split(",") if given else [str(i) for i, _ in enumerate(Path("/proc/driver/nvidia/gpus").glob("*"))]
    each = len([name for name in names if name]) // count
    return [",".join(names[number * each : (number + 1) * each]) for number in range(count)] if each else None


def end_with_parent() -> None:
    """Start a thread that ends this process when its standard input is closed: its supervisor is gone."""
    import threading

    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            while os.read(0, 1024):
                pass
        os._exit(ELSEWHERE)

    threading.Thread(target=wait, name="sparrow-parent", daemon=True).start()


FINAL: Final = (0, 2, 130, 143)
"""Exit codes after which a run does not begin again: it is complete, its command was wrong, or a signal stopped it."""

_progress: list[int] = []


class Restarts(NamedTuple):
    """Rules of a run that comes back by itself after a process was lost.

    Attributes:
      most: the number of restarts.
      newest: returns the step and the time of the newest checkpoint; None where there is none.
      fewer: returns the next smaller number of processes that may take over; None: as many are started every time.
    """

    most: int
    newest: Callable[[], tuple[int, float] | None]
    fewer: Callable[[int], int | None] = lambda _: None


def supervise(
    count: int, command: Callable[[Start], Sequence[str]], log: Callable[[str], None], restarts: Restarts | None = None
) -> int:
    """Run ``count`` processes to their end; when one fails, end all of them. Return the exit code.

    ``command`` returns the command of a process; ``log`` receives a line for a failure, and for the steps and the time
    that it cost. The output of the first process is passed on. Others are shown where they fail.

    With ``restarts``, all of them begin again from the newest checkpoint, unless the run ended well, by a mistake of
    the user (2), or by a signal to stop (130, 143). Where a restart brought no new checkpoint before the next failure,
    ``restarts.fewer`` processes begin.
    """
    children: list[Child] = []
    lost: _Lost | None = None
    with passed_on(children) as asked, tempfile.TemporaryFile() as file:
        progress = file.fileno()
        for number in itertools.count():
            os.pwrite(progress, struct.pack("q", 0), 0)
            began, resumes = time.time(), lost is not None and lost.saved is not None
            watched = functools.partial(_log_return, lost, progress, log)
            code, failed_at = run_once(children, count, command, resumes, progress, watched, log)
            if restarts is None or code in FINAL or asked or number == restarts.most:
                return code
            before, lost = lost, _Lost(_step(progress), restarts.newest(), began, failed_at)
            if before is not None and lost.saved is not None and lost.saved == before.saved:
                count = restarts.fewer(count) or count
            log(f"{lost}; restart {number + 1} of {restarts.most}, with {count} process{'es' * (count > 1)}")
    raise AssertionError


class _Lost(NamedTuple):
    """The work that a failure undid.

    Attributes:
      step: the last step made; 0 where none was since the start.
      saved: the step and the time of the newest checkpoint.
      began, failed_at: the times of the start and of the failure.
    """

    step: int
    saved: tuple[int, float] | None
    began: float
    failed_at: float

    def __str__(self) -> str:
        step, since = self.saved or (0, self.began)
        where = f"the checkpoint of step {step}" if self.saved else "the start"
        seconds = self.failed_at - max(since, self.began)
        return f"{max(self.step - step, 0)} steps and {max(seconds, 0.0):.1f} s since {where} are lost"


def _log_return(lost: _Lost | None, progress: int, log: Callable[[str], None]) -> bool:
    """Log the time without training, once the first step is made again; return whether there is nothing to wait for."""
    if lost is not None and _step(progress):
        log(f"the run goes on with step {_step(progress)}, {time.time() - lost.failed_at:.1f} s after the failure")
        return True
    return lost is None


def _step(progress: int) -> int:
    return int(struct.unpack("q", os.pread(progress, 8, 0))[0])


def tell_progress(step: int) -> None:
    """Write the number of steps made for the supervisor; does nothing where there is none."""
    for descriptor in _progress:
        os.pwrite(descriptor, struct.pack("q", step), 0)


def supervised(progress: int) -> None:
    """End this process with its supervisor, and tell it the progress by a file descriptor (-1: not this process)."""
    if progress >= 0:
        _progress.append(progress)
    end_with_parent()
