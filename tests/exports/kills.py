"""Kill a piece of work at one of its file operations, in a process of its own, or let the operation fail."""

import contextlib
import errno
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sparrow.data import DataError
from sparrow.files import atomic

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate"}


class Operations:
    """Counts the file operations below a folder, and stops at one of them."""

    def __init__(self, folder: Path, at: int, code: int | None) -> None:
        self.folder, self.at, self.code, self.count = str(folder), at, code, 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            if self.code is None:
                os._exit(9)
            raise OSError(self.code, os.strerror(self.code))


watching: list[Operations] = []  # an audit hook is there for good: it looks here


@functools.cache
def watch() -> None:
    """Give every file operation from now on to the `Operations` that watch."""

    def hook(event: str, arguments: tuple) -> None:
        if event in EVENTS:
            for operations in watching:
                if str(arguments[0]).startswith(operations.folder):
                    operations.step()

    sys.addaudithook(hook)


@contextlib.contextmanager
def counted(operations: Operations) -> Iterator[None]:
    """Count what is done inside."""
    fsync, renames = os.fsync, atomic._renameat2
    exchange = renames()

    def counted_fsync(descriptor):
        operations.step()
        fsync(descriptor)

    def counted_exchange(*arguments):
        operations.step()
        return exchange(*arguments)

    watch()
    os.fsync = counted_fsync
    if exchange is not None:
        atomic._renameat2 = lambda: counted_exchange
    watching.append(operations)
    try:
        yield
    finally:
        watching.remove(operations)
        os.fsync, atomic._renameat2 = fsync, renames


def run(work, folder: Path, at: int, code: int | None = None) -> int:
    """The exit code of a process that does ``work()`` and is killed (9) at operation number ``at``.

    With a ``code``: of this process, whose operation fails instead.

    0: it ended before that operation. 1: it raised an exception that is no `DataError` of one line. 2: it raised one.
    3: it went on after the error.
    """
    if code is not None:
        return done(work, Operations(folder, at, code))
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os._exit(done(work, Operations(folder, at, None)))
    finally:
        os._exit(1)


def done(work, operations: Operations) -> int:
    try:
        with counted(operations):
            work()
    except DataError as error:
        return 2 if len(str(error).splitlines()) == 1 else 1
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        return 1
    return 0 if operations.count < operations.at else 3


CODES = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.EBUSY)
