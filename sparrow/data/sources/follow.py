"""`Follow`: files that are read as they appear, once each, by the source that reads such files."""

from __future__ import annotations

import dataclasses
import glob
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sparrow import fields
from sparrow.data.errors import DataError
from sparrow.data.sources.any_source import source_of
from sparrow.data.sources.base import BadRows, Reader, Source, register_source
from sparrow.data.sources.growing import Entry, Flight, Growing, GrowingReader
from sparrow.data.values import numbers, plain
from sparrow.files import AnyPath, Remote, at, matching

UNFINISHED: Final = (".tmp", ".part", ".partial", ".inprogress", ".crdownload", "._COPYING_")
"""Endings of files that are being written."""


@register_source("follow")
@dataclasses.dataclass(frozen=True)
class Follow(Growing):
    """Files that are trained on as they appear, such as those of each hour. Waits for more.

    Each file is read once. Of the files that are there, the first by name (or by time) comes next; one that appears
    later is read when it is there, wherever its name stands in the order. Only complete files are read: those that were
    renamed into the folder, or have a ``marker``. Names that begin with a dot or an underscore, or end in .tmp, .part,
    .partial or .inprogress, are left out.

    Attributes:
      path: a pattern such as "clicks/dt=*/*.parquet", or a folder; of any store. Its ending decides how files are read.
      source: how they are read, instead of ``path``: a source with a path, such as csv.
      marker: files are complete when there is a file of this name in their folder, such as "_SUCCESS"; with a *, which
        stands for the file's name, each has its own: "*.done". None: files are renamed into the folder.
      time_column: files come in the order of their first value of this column; None: by name.
      bad_files: a file that cannot be read ends the run ("error"), or is left out with a line in the log ("skip").
      poll_seconds: the time between two looks for files.
      end_marker: the stream ends where this file exists, after all files.
    """

    path: str | None = None
    source: Source | None = None
    marker: str | None = None
    time_column: str | None = None
    bad_files: BadRows = "error"
    poll_seconds: fields.Positive = 1.0
    end_marker: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.path is None) == (self.source is None):
            raise ValueError("source 'follow': give either path or source")
        if not isinstance(getattr(self.files, "path", None), str):
            raise ValueError("source 'follow': source needs one path, with a pattern for files to come")

    @property
    def files(self) -> Source:
        return self.source if self.source is not None else source_of(self.path)

    def open(self, columns: Sequence[str]) -> Reader:
        """Wait for the first file, and read its columns."""
        return FollowReader(self, columns)

    def column_names(self) -> list[str]:
        """Return the columns of the first file."""
        reader = FollowReader(self, [])
        return self.read_with(reader.first).column_names()

    def read_with(self, file: str) -> Source:
        files: Any = self.files
        made: Source = dataclasses.replace(files, path=file)
        return made


class FollowReader(GrowingReader):
    """The chunks of files, as they appear."""

    def __init__(self, source: Follow, columns: Sequence[str]) -> None:
        files: Any = source.files
        super().__init__(source, source.poll_seconds, str(files.path))
        self._source, self._columns = source, list(columns)
        self._taken: set[str] = set()
        self._last: list[Any] | None = None  # the key of the last file that was taken
        self._after: list[Any] | None = None  # files up to this key were taken before, by a run whose journal is lost
        self._keys: dict[str, list[Any]] = {}
        self.begin()

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the pattern and the order: the files of a position are in the position."""
        text = repr((self.name, self._source.time_column))
        return "follow " + hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def first(self) -> str:
        return str(self._waiting[0]["file"])

    def look(self) -> list[Entry]:
        """Return the complete files that are new, in their order."""
        try:
            new = [str(file) for file in self._new() if self._is_complete(file)]
        except OSError as error:  # of a store: the next look may succeed
            self.notes.append(f"{self.name} could not be listed, and is tried again: {error}")
            return []
        keyed = sorted((key, file) for file in new if (key := self._key(file)) is not None)
        if self._after is not None:
            keyed = [(key, file) for key, file in keyed if key > self._after]
        return [{"file": file, "key": key} for key, file in keyed]

    def _new(self) -> list[AnyPath]:
        """Return the files that were not seen yet; looks at the others by their names alone, which may be many."""
        seen, folder = self._taken | {entry["file"] for entry in self._waiting}, at(self.name)
        is_folder = not glob.has_magic(self.name) and folder.is_dir()
        if isinstance(folder, Remote):
            found = folder.rglob("*") if is_folder else matching(self.name)
            return [file for file in found if str(file) not in seen]
        pattern = f"{glob.escape(str(folder))}/**" if is_folder else str(folder)
        names = glob.glob(pattern, recursive=True, include_hidden=is_folder)
        return [path for name in names if name not in seen and (path := Path(name)).is_file()]

    def _is_complete(self, file: AnyPath) -> bool:
        marker = self._source.marker
        if file.name.startswith((".", "_")) or file.name.endswith(UNFINISHED):
            return False
        if marker is None:
            return file.stat().st_size > 0
        if file.name == marker or ("*" in marker and file.name.endswith(marker.replace("*", ""))):
            return False
        return file.with_name(marker.replace("*", file.name)).is_file()

    def _key(self, file: str) -> list[Any] | None:
        """Return the place of a file in the order; None: it cannot be read, and is left out."""
        column = self._source.time_column
        if column is None:
            return [file]
        if file not in self._keys:
            try:
                rows = self._source.read_with(file).open([column]).read(0, "skip")
                parsed = numbers(plain(rows.table.column(column).combine_chunks()))
                values = parsed.values if parsed.missing is None else parsed.values[~parsed.missing]
                self._keys[file] = [float(np.min(values)) if len(values) else 0.0, file]
            except (DataError, IndexError) as error:
                if self._source.bad_files == "error":
                    raise
                self._leave_out({"file": file}, str(error))
                self._taken.add(file)
                return None
        return self._keys[file]

    def open_entry(self, entry: Entry, is_new: bool) -> Reader | None:
        """Open a file; one that was read before must hold the same rows."""
        if "left_out" in entry:
            return None
        try:
            reader = self._source.read_with(entry["file"]).open(self._columns)
        except DataError as error:
            if not is_new or self._source.bad_files == "error":
                raise
            self._leave_out(entry, str(error))
            return None
        if is_new:
            entry["content"] = reader.fingerprint
            waiting = [other["key"][0] for other in self._waiting if other is not entry]
            if waiting and self._source.time_column is not None:
                entry["then"] = min(waiting)
        elif entry["content"] != reader.fingerprint:
            why = "was changed after it was trained on, so the run cannot be repeated; put the old file back, or"
            raise DataError(f"{why} `sparrow train CONFIG --continue RUN` with another path", entry["file"])
        return reader

    def _leave_out(self, entry: Entry, why: str) -> None:
        entry["left_out"] = why
        self.notes.append(f"a file was left out: {why}")

    def took(self, entry: Entry) -> None:
        if "file" in entry:
            self._taken.add(entry["file"])
            key = entry["key"]
            if self._last is not None and key < self._last:
                self.notes.append(f"{entry['file']} came late, after {self._last[-1]}; it is read now")
            self._last = max(key, self._last or key)

    def flight_of(self, entry: Entry, own: int, column: str) -> Flight:
        """Return the file, and the least time of the files that waited with it, where they come by this time."""
        is_ordered = self._source.time_column == column
        return Flight(entry["file"], least=entry.get("then") if is_ordered else None)

    @property
    def place(self) -> dict[str, Any]:
        return {"after": self._last}

    def go_to(self, place: Mapping[str, Any]) -> None:
        """Continue behind a file: which of the files before it came late is not known any more."""
        self._last = self._after = place["after"]
        self._taken = set()

    def has_ended(self) -> bool:
        marker = self._source.end_marker
        return marker is not None and at(marker).exists()
