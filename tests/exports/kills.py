"""Kills, or fails, one file operation of a piece of work: each in turn, in a process of its own."""

import contextlib
import errno
import os
import sys
from pathlib import Path

from sparrow.files import atomic

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate"}


class Stop(BaseException):
    """Never raised out of a process that is to be killed."""


class Operations:
    """Counts the file operations below a folder, and stops at one of them."""

    def __init__(self, folder: Path, at: int, code: int | None) -> None:
        self.folder, self.at, self.code, self.count = str(folder), at, code, 0

    def hook(self, event: str, arguments: tuple) -> None:
        if event in EVENTS and str(arguments[0]).startswith(self.folder):
            self.step()

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            if self.code is None:
                os._exit(9)
            raise OSError(self.code, os.strerror(self.code))


def run(work, folder: Path, at: int, code: int | None = None) -> int:
    """The exit code of a process that does ``work()``, killed (9) or with an error at operation number ``at``.

    0: it ended before that operation. 1: it raised an exception that is no `DataError` of one line. 2: it raised one.
    """
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        from sparrow.data import DataError

        operations = Operations(folder, at, code)
        fsync, exchange = os.fsync, atomic._renameat2()

        def counted_fsync(descriptor):
            operations.step()
            fsync(descriptor)

        def counted_exchange(*arguments):
            operations.step()
            return exchange(*arguments)

        os.fsync = counted_fsync
        if exchange is not None:
            atomic._renameat2 = lambda: counted_exchange
        sys.addaudithook(operations.hook)
        try:
            work()
        except DataError as error:
            os._exit(2 if len(str(error).splitlines()) == 1 else 1)
        except BaseException as error:
            with contextlib.suppress(BaseException):
                os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0 if operations.count < at else 3)
    finally:
        os._exit(1)


CODES = (errno.EIO, errno.ENOSPC, errno.EACCES, errno.ESTALE, errno.EBUSY)
