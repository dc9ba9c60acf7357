"""Folders of other stores that are worked on here: fetched before they are read, sent as they change.

A store has no locks, no renames and no mapped files. Its folder is therefore a temporary folder of this machine
(in ``TMPDIR``), and the store is the truth: `working_copy` fetches its files, large ones when `fill` asks for them, and
`Mirror` sends what changed. Files in `LAST` are sent after, and removed before, the others of their folder: a folder
that has one is complete.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from sparrow.files.remote import AnyPath, Remote, Stat

LAST: Final = ("manifest.json", "export.json", "delta.json")
SECONDS: Final = 10.0
"""Between two looks for changed files."""
_UNFINISHED: Final = (".partial", ".deleted", ".damaged")


class _Copy:
    """The files of a store's folder on this machine.

    Attributes:
      local: the temporary folder.
      later: the files that are not fetched yet.
      is_sent: whether changes here go to the store: then nothing is fetched any more.
    """

    def __init__(self, folder: Remote) -> None:
        self._held = tempfile.TemporaryDirectory(prefix="sparrow-")
        self.local, self._folder, self.is_sent = Path(self._held.name), folder, False
        self.later: dict[str, Remote] = {}
        self._stats: dict[PurePosixPath, Stat] = {}

    def refresh(self) -> None:
        """Fetch what is new, but of complete folders inside only their descriptions; remove what is gone."""
        files = {file.relative_to(self._folder): file for file in self._folder.rglob()}
        complete = {name.parent for name in files if name.name in LAST and name.parent != PurePosixPath(".")}
        for name in [name for name in self._stats if name not in files]:
            (self.local / name).unlink(missing_ok=True)
            self.later.pop(str(name), None)
            del self._stats[name]
            with contextlib.suppress(OSError):  # where it was the last
                (self.local / name).parent.rmdir()
        for name, file in files.items():
            if self._stats.get(name) == file.stat():
                continue
            if name.suffix != ".json" and complete & set(name.parents):
                self.later[str(name)] = file
            else:
                file.fetch(self.local / name)
            self._stats[name] = file.stat()


_copies: dict[str, _Copy] = {}
"""By the address of the store's folder."""


def working_copy(folder: Remote) -> Path:
    """Return a temporary folder with the files of a store's folder as they are now; it ends with this process.

    A folder inside with a file of `LAST` is complete: `fill` fetches its files, other than ``.json``.
    """
    copy = _copies.setdefault(str(folder), _Copy(folder))
    if not copy.is_sent:
        copy.refresh()
    return copy.local


def fill(folder: Path) -> None:
    """Fetch the files of a folder that lies in a working copy; nothing else happens for other folders."""
    for copy in _copies.values():
        if copy.later and copy.local in folder.parents:
            prefix = folder.relative_to(copy.local).as_posix() + "/"
            for name in [name for name in copy.later if name.startswith(prefix)]:
                copy.later[name].fetch(copy.local / name)
                del copy.later[name]


@contextlib.contextmanager
def fetched(folder: AnyPath) -> Iterator[Path]:
    """Yield a folder of this machine: ``folder``, or a copy of a store's that is removed at the end."""
    if isinstance(folder, Path):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="sparrow-") as held:
        for file in folder.rglob():
            file.fetch(Path(held) / file.relative_to(folder))
        yield Path(held)


def send_folder(local: Path, folder: Remote) -> None:
    """Make a store's folder equal to one of this machine."""
    Mirror(local, folder, lambda line: None).send()


class Mirror:
    """Sends the files of a folder to a store, as they change, in a thread of its own."""

    def __init__(self, local: Path, folder: Remote, log: Callable[[str], None]) -> None:
        self._local, self._folder, self._log = local, folder, log
        copy = _copies.get(str(folder))
        self._later = {} if copy is None else copy.later
        self._there = {str(file.relative_to(folder)) for file in folder.rglob()}
        self._sent: dict[str, tuple[int, int]] = {}
        if copy is not None:  # fetched just now: equal
            copy.is_sent = True
            self._sent = {name: stamp for name, stamp in self._found().items() if name in self._there}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failed = ""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Send while the block runs, and at its end; raises `OSError` where the last files cannot be sent."""
        self._thread = threading.Thread(target=self._run, name="sparrow-mirror", daemon=True)
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
            self.send()
            if (copy := _copies.get(str(self._folder))) is not None:
                copy.is_sent = False

    def _run(self) -> None:
        while not self._stop.wait(SECONDS):
            try:
                self.send()
                self._failed = ""
            except OSError as error:
                why = f"{self._folder}: cannot be written, which is tried again: {error}"
                if why != self._failed:
                    self._log(why)
                self._failed = why

    def send(self) -> None:
        found = self._found()
        for name in sorted(found, key=lambda name: (PurePosixPath(name).name in LAST, name)):
            if self._sent.get(name) != found[name]:
                with contextlib.suppress(FileNotFoundError):  # an old checkpoint that was removed in the meantime
                    (self._folder / name).send(self._local / name)
                    self._sent[name] = found[name]
                    self._there.add(name)
        gone = {name for name in self._there if name not in found and not self._comes_later(name)}
        for name in sorted(gone, key=lambda name: (PurePosixPath(name).name not in LAST, name)):
            (self._folder / name).unlink(missing_ok=True)
            self._there.discard(name)
            self._sent.pop(name, None)
            self._later.pop(name, None)

    def _comes_later(self, name: str) -> bool:
        """Return whether a file was not fetched, in a complete folder that is still here."""
        above = [parent for parent in (self._local / name).parents if parent.is_relative_to(self._local)]
        return name in self._later and any((parent / last).is_file() for parent in above for last in LAST)

    def _found(self) -> dict[str, tuple[int, int]]:
        """Return the complete files of this machine, each with its time and size."""
        found = {}
        for folder, inner, names in os.walk(self._local):
            inner[:] = [name for name in inner if _is_complete(name)]
            for name in filter(_is_complete, names):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    stat = os.stat(path)
                    found[os.path.relpath(path, self._local)] = stat.st_mtime_ns, stat.st_size
        return found


def _is_complete(name: str) -> bool:
    return not name.startswith(".") and not any(mark in name for mark in _UNFINISHED)
