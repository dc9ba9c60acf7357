"""One process of a run with a fault in it: ``group_victim.py FAULT VICTIM ARGUMENTS...``, started by a supervisor."""

import errno
import itertools
import os
import sys

from sparrow import cli
from sparrow.feed import Pipeline
from sparrow.runs.loop.loop import Loop


def exception(after=3):
    """A mistake in a program, at a step that the other process makes."""
    made = Loop._make

    def make(self, call):
        if self.steps == after:
            raise ZeroDivisionError("a mistake in this process")
        made(self, call)

    Loop._make = make


def short_data(batches=4):
    """Files of which this process sees fewer rows."""
    iterate = Pipeline.__iter__

    def short(self):
        yield from itertools.islice(iterate(self), batches)

    Pipeline.__iter__ = short


def bad_read(batches=4):
    """A file that this process can no longer read."""
    iterate = Pipeline.__iter__

    def failing(self):
        for number, batch in enumerate(iterate(self)):
            if number == batches:
                raise OSError(errno.EIO, os.strerror(errno.EIO), "clicks.parquet")
            yield batch

    Pipeline.__iter__ = failing


def full_disk(after=4000):
    """A disk without room from some bytes on, in one checkpoint."""
    pwrite, left = os.pwrite, [after]

    def limited(descriptor, data, place):
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(descriptor, data, place)

    os.pwrite = limited


if __name__ == "__main__":
    fault, victim, *arguments = sys.argv[1:]
    if arguments[arguments.index("--process-id") + 1] == victim:
        {"exception": exception, "short_data": short_data, "bad_read": bad_read, "full_disk": full_disk}[fault]()
    sys.exit(cli.main(arguments))
