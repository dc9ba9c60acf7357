"""`Checkpoints`: the checkpoints of one run, of which some are kept."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from sparrow.checkpoint.blocks import Array, Key, Rows
from sparrow.checkpoint.errors import CheckpointError, Damaged
from sparrow.checkpoint.handler import StateHandler, StateSave
from sparrow.checkpoint.saved import Saved
from sparrow.files import sync


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return f"{os.sep}orbax{os.sep}" not in record.pathname


# Orbax logs the errors of its background thread with a traceback, and raises them too; once is enough. It logs through
# absl, whose logger belongs to the user: only the records of Orbax are dropped.
logging.getLogger("absl").addFilter(_is_not_of_orbax)

_DELETED, _DAMAGED, _IN_WORK = ".deleted", ".damaged", ".orbax-checkpoint-tmp"


class Checkpoints:
    """Saves checkpoints ``<folder>/<step>`` and removes old ones. One writer at a time.

    `save` returns when everything is copied or written; the rest happens in the background. What goes wrong there is
    raised by the next call.

    Attributes:
      best: the step of a checkpoint that stays, whatever its age; None: no such step.
    """

    def __init__(self, folder: Path, keep: int | None = None) -> None:
        """``keep``: how many of the newest stay; None: all."""
        self.folder, self.keep = folder, keep
        self.best: int | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        self._checkpointer = ocp.AsyncCheckpointer(
            StateHandler(), async_options=ocp.options.AsyncOptions(create_directories_asynchronously=False)
        )

    def save(
        self,
        step: int,
        tables: Mapping[Key, Rows],
        arrays: Mapping[str, Array],
        about: Mapping[str, Any],
    ) -> Path:
        """Starts to save, and gives the folder to be."""
        self.wait()
        self._remove_old()
        path, args = self._path(step), StateSave(tables, arrays, about)
        self._guarded(lambda: self._checkpointer.save(path.absolute(), args=args))
        return path

    def wait(self) -> None:
        """Until the checkpoint in work is whole."""
        self._guarded(self._checkpointer.wait_until_finished)
        sync(self.folder)

    def check(self) -> None:
        """Raises what went wrong in the background, without waiting."""
        self._guarded(self._checkpointer.check_for_errors)

    def close(self) -> None:
        """Waits, removes old ones, and ends the background threads."""
        try:
            self.wait()
            self._remove_old()
        finally:
            self._checkpointer.close()

    def set_aside(self, step: int) -> None:
        """Renames a damaged checkpoint, so that its step can be saved again."""
        aside = self._path(step).with_name(f"{step}{_DAMAGED}")
        shutil.rmtree(aside, ignore_errors=True)
        self._path(step).rename(aside)

    def _path(self, step: int) -> Path:
        return self.folder / str(step)

    def _remove_old(self) -> None:
        steps = saved_steps(self.folder)
        for step in steps[self.keep :] if self.keep is not None else ():
            if step != self.best:
                # Renamed first: a folder with a step's name is always whole.
                doomed = self._path(step).with_name(f"{step}{_DELETED}")
                self._path(step).rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)

    def _sweep(self) -> None:
        """Removes what a save that failed, or a writer that was killed, left."""
        for path in self.folder.iterdir():
            if path.name.endswith(_DELETED) or _IN_WORK in path.name:
                shutil.rmtree(path, ignore_errors=True)

    def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            work()
        except CheckpointError:
            raise
        except Exception as error:
            self._sweep()  # which gives a full disk some room again
            raise CheckpointError(f"{self.folder}: a checkpoint could not be saved: {_sentence(error)}") from error


def saved_steps(folder: Path) -> list[int]:
    """The steps of all checkpoints, the newest first."""
    if not folder.is_dir():
        return []
    return sorted(
        (int(path.name) for path in folder.iterdir() if path.name.isdecimal() and path.is_dir()), reverse=True
    )


def whole(folder: Path, say: Callable[[str], None]) -> Iterator[Saved]:
    """The checkpoints that are whole as far as opening them tells, the newest first; damaged ones are said."""
    for step in saved_steps(folder):
        try:
            yield Saved(folder / str(step))
        except Damaged as error:
            say(f"checkpoint {step} is damaged and was passed over: {error}")


def _sentence(error: BaseException) -> str:
    if os.strerror(errno.ENOSPC) in str(error):
        return "the disk is full"
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
