"""`WrittenFiles`: the list of the files that a run wrote into its folder; nothing else is ever removed from it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final

from sparrow.checkpoint import holding
from sparrow.files import replace_file
from sparrow.runs.errors import FolderError

NAME: Final = "written.json"
FORMAT: Final = 1
FOLDERS: Final = ("checkpoints", "tensorboard", "vocabularies")
"""Folders that may hold foreign files: the run's own files in them are listed one by one."""

_CHECKPOINT = re.compile(r"checkpoints/(0|[1-9][0-9]*)")
_FILE = re.compile(r"((tensorboard|vocabularies)/)?[^/\0]+")
_NO_CONTENT = re.compile(r"lost\+found|\.DS_Store|\.nfs.*|\.written\.json\..*\.partial")
"""Names that are ignored in a folder that counts as empty."""
_READ: Final = "{}: another process reads this checkpoint; wait for it, or choose another folder"


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
        self.read()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def read(self) -> None:
        """Read the list again; one that is damaged counts as missing."""
        try:
            held = json.loads((self.folder / NAME).read_bytes())
            self._names = {name for name in held["written"] if _is_sound(name)}
            self.exists = held["format"] == FORMAT
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            self._names, self.exists = set(), False

    def add(self, names: Iterable[str]) -> None:
        """Add names that are about to be written. Names in folders leave the list when their files are removed."""
        new = set(names) - self._names
        if new or not self.exists:
            self._names = {name for name in self._names if self._is_there(name)} | new
            held = {"format": FORMAT, "written": sorted(self._names)}
            replace_file(self.folder / NAME, (json.dumps(held, indent=1) + "\n").encode())
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

    def remove(self, stay: Container[str] = (NAME,)) -> None:
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
