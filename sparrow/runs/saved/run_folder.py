"""`RunFolder`: the folder of one run, which one process at a time writes to."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import socket
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sparrow import processes
from sparrow.checkpoint import saved_steps
from sparrow.files import AnyPath, Mirror, Remote, at, replace_file, working_copy
from sparrow.reports import CONFIG, CURVES, ENVIRONMENT, METRICS, REPORT, TRAFFIC
from sparrow.runs.errors import FolderError
from sparrow.runs.saved import written

LOCK: Final = "lock"
STREAM: Final = "stream.jsonl"
"""The journal of a source that grows."""
STATUS: Final = "status.json"
FILES: Final = (LOCK, STATUS, STREAM, written.NAME, CONFIG, METRICS, CURVES, TRAFFIC, ENVIRONMENT, REPORT)
"""Files that every run may write."""


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
        self.written = written.WrittenFiles(self.path)

    def __str__(self) -> str:
        return str(self.remote or self.path)

    @property
    def steps(self) -> list[int]:
        """The steps that are saved here, the newest first."""
        return saved_steps(self.checkpoints)

    @property
    def status(self) -> dict[str, Any]:
        """The status that the run wrote last; empty where there is none."""
        try:
            status = json.loads(self._status.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        return status if isinstance(status, dict) else {}

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
                "replace it, or --resume to train it further with more steps or epochs"
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
        self.written.remove(stay=(written.NAME, LOCK))

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
