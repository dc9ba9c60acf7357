"""`Checkpoints`: the checkpoints of one run; the newest ones are kept."""

from __future__ import annotations

import concurrent.futures
import contextlib
import errno
import functools
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from sparrow import processes
from sparrow.checkpoint.blocks import Array, Key, TableRows
from sparrow.checkpoint.content import FORMAT_VERSION, IN_WORK, NUMBER
from sparrow.checkpoint.errors import CheckpointError, Damaged, Vanished, sentence
from sparrow.checkpoint.holding import remove
from sparrow.checkpoint.links import ARRAYS, ID, PARENT, ancestors, compact, difference, write_link
from sparrow.checkpoint.saved import Saved
from sparrow.checkpoint.writer import begin
from sparrow.embedding import ChangedRows
from sparrow.files import give_back, sync

_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
_DELETED, _DAMAGED = ".deleted", ".damaged"

LogLine = Callable[[str], None]
T = TypeVar("T")


class Checkpoints:
    """Writer of checkpoints ``<folder>/<step>``, which removes old ones. One writer at a time.

    `save` returns when everything is copied or written; the rest happens in the background. An error there is raised
    by the next call. An old checkpoint is removed only after a newer one is complete, and not while a reader holds it.

    Attributes:
      best: the step of a checkpoint that stays regardless of its age. The previous best stays until this one is
        saved. None: no such step.
    """

    def __init__(
        self,
        folder: Path,
        keep: int | None = None,
        log: LogLine = lambda _: None,
        owns: Callable[[int], bool] = lambda _: True,
        claim: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Open the folder and remove leftovers of a writer that was killed.

        Args:
          folder: the folder of the checkpoints.
          keep: the number of newest checkpoints to keep; None: all.
          log: receives a line for each checkpoint that cannot be removed.
          owns: whether the checkpoint of a step may be removed or renamed.
          claim: is called, mostly in the background, before the first file of the checkpoint of a step is made.
        """
        self.folder, self.keep, self._log, self._owns, self._claim = folder, keep, log, owns, claim
        self.best: int | None = None
        self._saved_best: int | None = None
        self._stuck: set[int] = set()  # checkpoints that could not be removed, already logged
        if processes.is_first():
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CheckpointError(f"{folder}: cannot be made: {error.strerror}") from None
        self._sweep()
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sparrow-checkpoint")
        self._work: dict[str, concurrent.futures.Future[None]] = {}  # "save", "link" and "tidy"
        self._parent: dict[str, Any] | None = None
        self._arrays: Mapping[str, Array] = {}
        self._links = 0

    def save(
        self,
        step: int,
        tables: Mapping[Key, TableRows],
        arrays: Mapping[str, Array],
        about: Mapping[str, Any],
        copy_bytes: int | None = None,
    ) -> Path:
        """Start to save, and return the path of the new checkpoint.

        ``copy_bytes``: the most bytes of tables that are copied to the host, and written later; None: `copy_limit`, and
        copies on the GPU itself where it has the memory. At most one save holds copies at a time.
        """
        self.check()
        self._wait_for("save")  # one at a time holds copies
        own = {ID: secrets.token_hex(8)}
        path, about = self._path(step), {**about, **own, NUMBER: step}
        claim = functools.partial(self._claim, step)
        finish = self._guarded(lambda: begin(path.absolute(), tables, arrays, about, copy_bytes, claim))

        self._work |= {"save": self._pool.submit(finish), "tidy": self._pool.submit(self._tidy)}
        self._parent, self._arrays, self._links = {"step": step, **own}, arrays, 0
        return path

    @property
    def can_link(self) -> bool:
        """Whether `save_link` may follow: this writer has saved a full checkpoint, and is the only process."""
        return self._parent is not None and processes.count() == 1

    def save_link(
        self,
        step: int,
        changed: Callable[[], Mapping[str, ChangedRows]],
        arrays: Mapping[str, Array],
        about: Mapping[str, Any],
        compact_after: int | None = None,
    ) -> Path:
        """Start to save what changed since the last save, and return the path of the new link.

        Args:
          step: the step.
          changed: returns the changed rows of tables, from another thread.
          arrays: every other array; the ones that did not change are left out.
          about: plain values.
          compact_after: the links after which a chain is made a full checkpoint, in the background; None: never.
        """
        self._wait_for("link")
        saving = self._work.get("save")
        parent, before, path = self._parent, self._arrays, self._path(step)
        own = {ID: secrets.token_hex(8)}
        described = {"form": FORMAT_VERSION, **about, **own, NUMBER: step, PARENT: parent, ARRAYS: list(arrays)}
        self._parent, self._arrays, self._links = {"step": step, **own}, arrays, self._links + 1
        is_long = compact_after is not None and self._links >= compact_after
        self._links = 0 if is_long else self._links

        def work() -> None:
            rows, others = changed(), difference(before, arrays)
            if saving is not None:
                saving.result()  # a link never appears without what it stands on
            self._claim(step)
            write_link(path, rows, others, described)
            if is_long:
                self._compact(path)

        self._work["link"] = self._pool.submit(work)
        self._work["tidy"] = self._pool.submit(self._tidy, 60)  # the next save does not wait for it
        return path

    @property
    def is_linking(self) -> bool:
        """Whether the last link is still being written."""
        return "link" in self._work and not self._work["link"].done()

    def _tidy(self, every: float = 0.0) -> None:
        self._remove_old()
        give_back(every)

    def _compact(self, path: Path) -> None:
        try:
            with contextlib.closing(Saved(path)) as saved:
                compact(saved)
        except (Damaged, OSError) as error:  # the chain stays as it is
            self._log(f"{path}: its chain could not be made one checkpoint: {error}")

    def wait(self) -> None:
        """Wait until the current checkpoint is complete."""
        for kind in ("link", "save", "tidy"):
            self._wait_for(kind)
        self._guarded(lambda: sync(self.folder))

    def _wait_for(self, kind: str) -> None:
        if (work := self._work.pop(kind, None)) is not None:
            self._guarded(work.result)

    def check(self) -> None:
        """Raise the error of the background thread, if there is one by now; do not wait."""
        for kind in ("link", "save"):
            if kind in self._work and self._work[kind].done():
                self._wait_for(kind)

    def close(self) -> None:
        """Wait, remove old ones, and end the background thread."""
        try:
            self.wait()
            self._remove_old()
        finally:
            self._pool.shutdown()

    def set_aside(self, step: int) -> None:
        """Rename a damaged checkpoint, so that its step can be saved again."""
        if not self._owns(step):
            raise CheckpointError(f"{self._path(step)}: is not a checkpoint of this run; move it elsewhere")
        aside = self._path(step).with_name(f"{step}{_DAMAGED}")
        shutil.rmtree(aside, ignore_errors=True)
        try:
            self._path(step).rename(aside)
        except OSError as error:
            raise CheckpointError(
                f"{self._path(step)}: is damaged, and cannot be renamed: {error.strerror}; move it elsewhere"
            ) from None

    def _path(self, step: int) -> Path:
        return self.folder / str(step)

    def _remove_old(self) -> None:
        if not processes.is_first():
            return
        try:
            steps = [step for step in saved_steps(self.folder) if self._owns(step)]
        except CheckpointError as error:
            self._log(f"no old checkpoint was removed: {error}")
            return
        if self.best in steps or self.best is None:
            self._saved_best = self.best
        stay = {self.best, self._saved_best, *steps[: self.keep]}
        stay |= ancestors(self.folder, [step for step in steps if step in stay])
        for step in steps:
            if step not in stay:
                try:
                    remove(self._path(step), self._path(step).with_name(f"{step}{_DELETED}"))
                except OSError as error:
                    if step not in self._stuck:
                        self._log(f"{self._path(step)}: this old checkpoint cannot be removed: {error.strerror}")
                    self._stuck.add(step)

    def _sweep(self) -> None:
        """Remove leftovers of a save that failed, or of a writer that was killed."""
        if not processes.is_first():
            return
        try:
            names = os.listdir(self.folder)
        except OSError as error:
            raise CheckpointError(f"{self.folder}: cannot be read: {error.strerror}") from None
        for name in names:
            step, dot, rest = name.partition(".")
            if _is_step(step) and (dot + rest == _DELETED or rest.startswith(IN_WORK[1:])) and self._owns(int(step)):
                shutil.rmtree(self.folder / name, ignore_errors=True)

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except CheckpointError:
            raise
        except Exception as error:
            with contextlib.suppress(CheckpointError):
                self._sweep()  # frees space on a full disk
            raise CheckpointError(f"{self.folder}: a checkpoint could not be saved: {sentence(error)}") from error


def saved_steps(folder: Path) -> list[int]:
    """Return the steps of all checkpoints, the newest first. A path that is no folder has none.

    Raises `CheckpointError` for a folder that the operating system cannot list: its content is unknown.
    """
    try:
        entries = list(os.scandir(folder))
    except ValueError:  # a path that holds a zero byte
        return []
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return []
        raise CheckpointError(f"{folder}: cannot be listed: {error.strerror}") from None
    return sorted(
        (int(entry.name) for entry in entries if _is_step(entry.name) and _may_be_folder(entry)), reverse=True
    )


def _is_step(name: str) -> bool:
    """Return whether a folder of this name may be a checkpoint.

    >>> _is_step("500"), _is_step("0500"), _is_step("500.deleted"), _is_step("٥")
    (True, False, False, False)
    """
    return name.isascii() and name.isdecimal() and str(int(name)) == name


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a folder or cannot be examined: opening it then logs the reason."""
    try:
        return entry.is_dir() or entry.is_symlink()
    except OSError:
        return True


def whole(folder: Path, log: LogLine) -> Iterator[Saved]:
    """Yield the checkpoints that open without damage, the newest first; log each damaged one and skip it.

    Each is held until the next one is requested. The folder is listed again every time: while its run trains, new
    checkpoints appear and old ones vanish.
    """
    tried: set[int] = set()
    while (step := next((step for step in saved_steps(folder) if step not in tried), None)) is not None:
        tried.add(step)
        try:
            saved = Saved(folder / str(step))
        except Vanished:
            continue
        except Damaged as error:
            log(passed_over(step, error))
            continue
        try:
            yield saved
        finally:
            saved.close()


def passed_over(step: int, error: Damaged) -> str:
    """Return the line of the log for a damaged checkpoint."""
    return f"checkpoint {step} is damaged and was skipped: {error}"
