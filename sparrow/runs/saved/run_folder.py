"""`RunFolder`: the folder of one run, which one process at a time writes to.

`WrittenFiles` lists the files that the run wrote there; nothing else is ever removed from it.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import re
import shutil
import socket
import stat
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sparrow import processes
from sparrow.checkpoint import holding, saved_steps
from sparrow.files import AnyPath, Mirror, Remote, at, json_object, replace_file, working_copy
from sparrow.reports import CONFIG, CURVES, ENVIRONMENT, METRICS, REPORT, TRAFFIC
from sparrow.runs.errors import FolderError

LOCK: Final = "lock"
STREAM: Final = "stream.jsonl"
"""The journal of a source that grows."""
STATUS: Final = "status.json"
WRITTEN: Final = "written.json"
FORMAT: Final = 1
FOLDERS: Final = ("checkpoints", "tensorboard", "vocabularies")
"""Folders that may hold foreign files: the run's own files in them are listed one by one."""
FILES: Final = (LOCK, STATUS, STREAM, WRITTEN, CONFIG, METRICS, CURVES, TRAFFIC, ENVIRONMENT, REPORT)
"""Files that every run may write."""

_CHECKPOINT = re.compile(r"checkpoints/(0|[1-9][0-9]*)")
_FILE = re.compile(r"((tensorboard|vocabularies)/)?[^/\0]+")
_NO_CONTENT = re.compile(r"lost\+found|\.DS_Store|\.nfs.*|\.written\.json\..*\.partial")
"""Names that are ignored in a folder that counts as empty."""
_READ: Final = "{}: another process reads this checkpoint; wait for it, or choose another folder"


class RunFolder:
    """The paths of a run folder, its status and its lock."""

    def __init__(self, path: str | AnyPath) -> None:
        given = at(path)
        self.remote = given if isinstance(given, Remote) else None
        self.path = given if isinstance(given, Path) else _copy(given)
        self.config = self.path / CONFIG
        self.checkpoints = self.path / "checkpoints"
        self._lock = self.path / LOCK
        self._status = self.path / STATUS
        self.written = WrittenFiles(self.path)

    def __str__(self) -> str:
        return str(self.remote or self.path)

    @property
    def steps(self) -> list[int]:
        """The steps that are saved here, the newest first."""
        return saved_steps(self.checkpoints)

    @property
    def status(self) -> dict[str, Any]:
        """The status that the run wrote last; empty where there is none."""
        return json_object(self._status)

    @property
    def best(self) -> int | None:
        """The best step that the run knows, where its checkpoint is saved; None: there is none."""
        with contextlib.suppress(TypeError, ValueError, KeyError, IndexError):
            best = int(self.status["best"][0])
            return best if best in self.steps else None
        return None

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Write the status of the run: never half of it."""
        replace_file(self._status, (json.dumps(status, indent=1) + "\n").encode())

    def owns_checkpoint(self, step: int) -> bool:
        return f"checkpoints/{step}" in self.written

    def refuse_if_unusable(self) -> None:
        """Refuse a path that cannot be a folder, and a folder with foreign files."""
        try:
            mode: int | None = os.stat(self.path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = None
        except (OSError, ValueError) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise FolderError(f"{_short(self)}: cannot be a folder: {why}; choose another") from None
        above = next((place for place in self.path.absolute().parents if os.path.lexists(place)), None)
        wrong = self.path if mode is not None and not stat.S_ISDIR(mode) else None
        if mode is None and above is not None and not above.is_dir():
            wrong = above
        if wrong is not None:
            raise FolderError(f"{_short(self)}: cannot be a folder: {wrong} is a file; choose another")
        if mode is None and os.path.lexists(self.path):
            raise FolderError(f"{_short(self)}: is a link to nothing; remove it, or choose another folder")
        self._refuse_if_of_others()

    def _refuse_if_of_others(self) -> None:
        if self.written.exists or any(map(self._is_ours, self.steps)):
            return
        own = {LOCK} if self._is_own_lock() else set()
        if others := self.written.others(own):
            shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
            raise FolderError(
                f"{self} holds files that are not of a run ({shown}); choose a folder that is empty or new"
            )

    def _is_own_lock(self) -> bool:
        """Return whether the lock is one that a run wrote, before it could list it."""
        try:
            text = self._lock.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return False
        return not text or _owner(text) != _UNKNOWN

    def refuse_if_taken(self, resume: bool, overwrite: bool) -> None:
        """Refuse to continue or replace an existing run unless requested."""
        if resume and overwrite:
            raise FolderError("resume continues a run, overwrite replaces it; choose one")
        if not self.steps or resume or overwrite:
            return
        if self.status.get("finished"):
            raise FolderError(
                f"{self} holds a finished run (step {self.steps[0]}); choose another folder, add --overwrite to "
                "replace it, or --resume to train it further with more steps or epochs (in Python: overwrite=True, "
                "resume=True)"
            )
        raise FolderError(
            f"{self} holds an unfinished run, last saved at step {self.steps[0]}; add --resume to continue it, "
            "or --overwrite to start again"
        )

    def refuse_if_used(self) -> None:
        """Refuse a folder that another process writes to, before anything is read or built; `locked` decides."""
        with contextlib.suppress(OSError), self._lock.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._in_use(file) from None

    def _in_use(self, file: Any) -> FolderError:
        try:
            owner = _owner(file.read())
        except (OSError, ValueError):
            owner = _UNKNOWN
        return FolderError(f"{self} is in use by {owner}; wait for it, or choose another folder")

    def begin(self, is_new: bool) -> None:
        """List the files that a run writes; remove what another run left here, if this is a new one.

        The checkpoints of a run whose list is lost are its own.
        """
        lost = [] if self.written.exists else [f"checkpoints/{step}" for step in self.steps if self._is_ours(step)]
        self.written.add([*FILES, *lost])
        if is_new:
            self.clear()

    def _is_ours(self, step: int) -> bool:
        return all(os.path.exists(self.checkpoints / str(step) / name) for name in ("manifest.json", "about.json"))

    def clear(self) -> None:
        """Remove the files that a run left here, and nothing else; the list and the lock, which is held, stay."""
        self.written.remove(stay=(WRITTEN, LOCK))

    @contextlib.contextmanager
    def locked(self, log: Callable[[str], None]) -> Iterator[None]:
        """Hold the folder: a second writer is refused.

        It is the operating system's own lock, which ends with the process. The file names its owner.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FolderError(f"{self}: cannot be written to: {error.strerror}") from None
        sent = contextlib.nullcontext() if self.remote is None else Mirror(self.path, self.remote, log).running()
        with sent, os.fdopen(descriptor, "r+", encoding="utf-8", errors="replace") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._in_use(file) from None
            except OSError as error:
                log(f"{self}: this file system keeps no locks ({error.strerror}); let one process at a time write here")
            self.written.read()  # another process may have worked here in the meantime
            if left := file.read():
                log(f"{_owner(left)} left this folder without finishing; this run continues")
            since = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            _write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}))
            try:
                yield
            finally:
                _write(file, "")


def _copy(folder: Remote) -> Path:
    if processes.count() > 1:
        raise FolderError(f"{folder}: several processes need a folder that all of them see; choose one")
    try:
        return working_copy(folder)
    except OSError as error:
        raise FolderError(f"{folder}: cannot be read: {error}") from None


_UNKNOWN: Final = "another process"


def _write(file: Any, text: str) -> None:
    with contextlib.suppress(OSError):  # on a full disk the lock still holds
        file.seek(0)
        file.truncate()
        file.write(text)
        file.flush()


def _owner(text: str) -> str:
    try:
        owner = json.loads(text)
        return f"process {owner['pid']} on {owner['host']} (since {owner['since']})"
    except (ValueError, KeyError, TypeError, RecursionError):
        return _UNKNOWN


def _short(path: Any) -> str:
    text = str(path)
    return text if len(text) <= 100 else f"{text[:97]}..."


class WrittenFiles:
    """Names in a run folder, relative to it. A name is added before its file is written.

    Attributes:
      folder: the run folder.
      exists: whether the folder has such a list: it is a run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.exists = False
        self._names: set[str] = set()
        self._adding = threading.Lock()
        self.read()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def read(self) -> None:
        """Read the list again; one that is damaged counts as missing."""
        try:
            held = json.loads((self.folder / WRITTEN).read_bytes())
            self._names = {name for name in held["written"] if _is_sound(name)}
            self.exists = held["format"] == FORMAT
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self._names, self.exists = set(), False

    def add(self, names: Iterable[str]) -> None:
        """Add names that are about to be written. Names in folders leave the list when their files are removed."""
        with self._adding:  # checkpoints are added in the background
            new = set(names) - self._names
            if new or not self.exists:
                self._names = {name for name in self._names if self._is_there(name)} | new
                held = {"format": FORMAT, "written": sorted(self._names)}
                replace_file(self.folder / WRITTEN, (json.dumps(held, indent=1) + "\n").encode())
                self.exists = True

    def _is_there(self, name: str) -> bool:
        """Return whether the file exists, or a checkpoint under its temporary names."""
        path = self.folder / name
        return "/" not in name or os.path.lexists(path) or (bool(_CHECKPOINT.fullmatch(name)) and any(_remains(path)))

    def others(self, own: Iterable[str]) -> list[str]:
        """Return the names in a folder without a list that are not in ``own``: their owner is unknown."""
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise FolderError(f"{self.folder}: cannot be read: {error.strerror}") from None
        return sorted(name for name in names if name not in set(own) and not _NO_CONTENT.fullmatch(name))

    def remove(self, stay: Container[str] = (WRITTEN,)) -> None:
        """Remove all listed files but ``stay``, or none and raise `FolderError` where a checkpoint is being read."""
        for name in self._names:
            if _CHECKPOINT.fullmatch(name) and holding.is_held(self.folder / name):
                raise FolderError(_READ.format(self.folder / name))
        for name in sorted(self._names):
            path = self.folder / name
            try:
                if _CHECKPOINT.fullmatch(name):
                    self._remove_checkpoint(path)
                elif name not in stay:
                    path.unlink(missing_ok=True)
            except OSError as error:
                raise FolderError(f"{path}: cannot be removed: {error.strerror}") from None
        for folder in FOLDERS:
            try:
                (self.folder / folder).rmdir()
            except OSError:  # it holds foreign files, or does not exist
                continue

    def _remove_checkpoint(self, path: Path) -> None:
        if path.is_dir() and not holding.remove(path, path.with_name(f"{path.name}.deleted")):
            raise FolderError(_READ.format(path))
        for left in _remains(path):
            shutil.rmtree(left, ignore_errors=True)


def _remains(checkpoint: Path) -> Iterator[Path]:
    """Yield the folders of this checkpoint that are unfinished, damaged or deleted, such as after a killed writer."""
    return checkpoint.parent.glob(f"{checkpoint.name}.*")


def _is_sound(name: object) -> bool:
    """Return whether a run writes such names: nothing outside of its folder is ever touched, for any list."""
    if not isinstance(name, str) or name.split("/")[-1] in (".", "..") or name in FOLDERS:
        return False
    return bool(_CHECKPOINT.fullmatch(name) or _FILE.fullmatch(name))
