"""Commands of several processes: their options, joining them, and ending together."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from sparrow.cli.command import arg, at_least_one
from sparrow.cli.output import FAILED, OUTPUT, USER_ERROR, Mistake, error_lines, note

GROUP_HELP: Final = "SLURM, Open MPI, Kubernetes, TPU slices and torchrun are detected without options."
GROUP: Final = tuple(
    argument._replace(of_group=True)
    for argument in (
        arg("--processes", type=at_least_one, default=1, metavar="N", help="start N on this machine"),
        arg("--coordinator", metavar="HOST:PORT", help="the first process, for processes started by hand"),
        arg("--num-processes", type=at_least_one, metavar="N", help="the number of them"),
        arg("--process-id", type=int, metavar="I", help="the number of this one, from 0"),
        arg("--supervised", type=int, nargs="?", const=-1, help=argparse.SUPPRESS),
    )
)
"""The options of several processes."""


def in_group(options: argparse.Namespace, arguments: Sequence[str], run: Callable[[argparse.Namespace], int]) -> int:
    """Run a command alone, as one of several processes, or as the supervisor of several. Return the exit code."""
    from sparrow import processes
    from sparrow.errors import ConfigError

    try:
        if options.supervised is None and (options.processes > 1 or getattr(options, "restarts", 0)):
            return _supervised(options, arguments)
        _join(options)
    except (processes.JoinError, ConfigError, Mistake) as error:
        return error_lines(error, USER_ERROR)
    if processes.count() == 1:
        return run(options)
    OUTPUT.listener, OUTPUT.is_silent = _publish, not processes.is_first()
    code = _of_several(options, run)
    _leave(code)
    return code


def _supervised(options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Start the command in several processes of this machine."""
    from sparrow import processes

    if options.coordinator is not None or options.num_processes is not None or options.process_id is not None:
        raise Mistake("--processes starts all processes; leave --coordinator, --num-processes and --process-id out")

    restarts = options.command.restarts(options) if getattr(options, "restarts", 0) else None

    def command(start: processes.Start) -> list[str]:
        own = ["--coordinator", start.address, "--num-processes", str(start.count), "--process-id", str(start.number)]
        own = own if options.processes > 1 else []  # one process joins the group that the environment names, if any
        again = ["--restarted"] if start.resumes else []
        return [sys.executable, "-m", "sparrow.cli", *arguments, *own, *again, "--supervised", str(start.progress)]

    return processes.supervise(options.processes, command, note, restarts)


def _join(options: argparse.Namespace) -> None:
    """Join the other processes, where options or the environment name them."""
    from sparrow import processes

    if options.supervised is not None:
        processes.supervised(options.supervised)
    place = processes.membership_of(options.coordinator, options.num_processes, options.process_id)
    if place is not None:
        processes.join(place)


def _of_several(options: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Run the command: a failure here ends the others, and one of them ends this."""
    from sparrow import processes, runs

    try:
        return run(options)
    except runs.Elsewhere as error:
        return error_lines(error, processes.ELSEWHERE)
    except Exception as error:
        cause = processes.cause()
        if cause is not None:
            return error_lines(f"ended by the failure of {cause}", processes.ELSEWHERE)
        if "Gloo" in str(error) or "UNAVAILABLE" in str(error):
            reason = str(error).splitlines()[0]
            return error_lines(f"another process was lost; add --resume to continue ({reason})", processes.ELSEWHERE)
        traceback.print_exc()
        processes.report_failure(f"{type(error).__name__}: {error}")
        return FAILED


def _publish(text: str, code: int) -> None:
    """Make a failure of this process known to the others."""
    from sparrow import processes

    if code in (FAILED, USER_ERROR):
        processes.report_failure(text)


def _leave(code: int) -> None:
    """Leave the group; after a failure at once: JAX would wait for the others."""
    from sparrow import processes

    if not code:
        processes.leave()
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if processes.is_first():
        time.sleep(2)  # the others read the cause from this process
    os._exit(code)
