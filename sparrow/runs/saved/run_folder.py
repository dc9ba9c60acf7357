"""`RunFolder`: the folder of one run, which one process at a time writes to."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sparrow.checkpoint import saved_steps
from sparrow.files import replace_file
from sparrow.runs.errors import FolderError


class RunFolder:
    """What a run folder holds, and where."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"
        self.metrics = self.path / "metrics.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.report = self.path / "report.html"
        self._lock = self.path / "lock"
        self._status = self.path / "status.json"

    def __str__(self) -> str:
        return str(self.path)

    @property
    def steps(self) -> list[int]:
        """The steps that are saved here, the newest first."""
        return saved_steps(self.checkpoints)

    @property
    def status(self) -> dict[str, Any]:
        """What the run last said about itself; empty where it said nothing."""
        try:
            status: dict[str, Any] = json.loads(self._status.read_text(encoding="utf-8"))
            return status
        except (OSError, ValueError):
            return {}

    def set_status(self, status: Mapping[str, Any]) -> None:
        """Says how the run stands: never half of it."""
        replace_file(self._status, (json.dumps(status, indent=1) + "\n").encode())

    def refuse_if_taken(self, resume: bool, overwrite: bool) -> None:
        """A run that lies here is neither continued nor replaced without being told."""
        if resume and overwrite:
            raise FolderError("resume goes on with a run, overwrite replaces it; choose one")
        if not self.steps or resume or overwrite:
            return
        if self.status.get("finished"):
            raise FolderError(
                f"{self} holds a finished run (step {self.steps[0]}); choose another folder, add --overwrite to "
                "replace it, or --resume to train it further with more steps or epochs"
            )
        raise FolderError(
            f"{self} holds an unfinished run, last saved at step {self.steps[0]}; add --resume to go on with it, "
            "or --overwrite to start anew"
        )

    def refuse_if_used(self) -> None:
        """A quick look, before anything is read or built; `locked` decides."""
        with contextlib.suppress(FileNotFoundError), self._lock.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                raise self._in_use(file.read()) from None

    def _in_use(self, owner: str) -> FolderError:
        return FolderError(f"{self} is in use by {_owner(owner)}; wait for it, or choose another folder")

    def clear(self) -> None:
        """Removes what a run left here, and nothing else."""
        for folder in (self.checkpoints, self.tensorboard):
            shutil.rmtree(folder, ignore_errors=True)
        for file in (self.config, self.metrics, self.report, self._status):
            file.unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, say: Callable[[str], None]) -> Iterator[None]:
        """Holds the folder: a second writer is refused.

        The operating system's own lock, which ends with the process however that ends. The file says whose it is.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise FolderError(f"{self}: cannot be written to: {error.strerror}") from None
        with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise self._in_use(file.read()) from None
            if left := file.read():
                say(f"{_owner(left)} left this folder without finishing; going on in its place")
            _write(file, json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}))
            try:
                yield
            finally:
                _write(file, "")


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
    except (ValueError, KeyError, TypeError):
        return "another process"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
