"""`supervise`: a run of several processes that begins again by itself where one of them is lost."""

from __future__ import annotations

import functools
import itertools
import os
import struct
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from sparrow.processes.supervising import Child, Start, end_with_parent, passed_on, run_once

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

    The output of the first process is passed on. Others are shown where they fail.

    With ``restarts``, all of them begin again from the newest checkpoint, unless the run ended well, by a mistake of
    the user (2), or by a signal to stop (130, 143). Where a restart brought no new checkpoint before the next failure,
    ``restarts.fewer`` processes begin.

    Args:
      count: the number of processes.
      command: the command of a process.
      log: receives a line for a failure, and for the steps and the time that it cost.
      restarts: None: never.
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
