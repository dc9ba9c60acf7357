"""`Saved`: one checkpoint, opened, held and checked."""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import safetensors
import safetensors.numpy

from sparrow import processes, registry
from sparrow.checkpoint.blocks import Array, Key, Written, exactly, file_size, header_of, read, rows_in
from sparrow.checkpoint.content import ABOUT, FORMAT_VERSION, NUMBER, STATE, check, read_checked, read_manifest
from sparrow.checkpoint.errors import CheckpointError, Damaged, Vanished, altered, unreadable
from sparrow.checkpoint.extents import Extent, add, joined
from sparrow.checkpoint.holding import Hold
from sparrow.checkpoint.links import ARRAYS, CHANGED, ID, PARENT, changed_of, merged, overlaid, patched
from sparrow.embedding import ChangedRows
from sparrow.files import fill


class TableFile(NamedTuple):
    """The file of the rows of a table or slot."""

    file: str
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A table or slot in ``about.json``."""

    table: str
    slot: str | None
    file: str
    shape: list[int]
    dtype: str


class SavedRows:
    """The rows of a table or slot: all of them in blocks, by iteration; or a process's part of them.

    Blocks come each with the number of its first row; `Damaged` is raised last. After an error in a part, its rows are
    zeros: all processes take all rows, and `check` raises the reason.
    """

    def __init__(self, saved: Saved, key: Key) -> None:
        self._base, self._slot, table = saved.base, key.slot or "", saved.tables[key]
        self._path, self._shape, self._dtype = self._base.path / table.file, table.shape, table.dtype
        self._written = self._base.files[table.file]
        self._changed = saved.changed.get(key.table)  # what links of a chain replace
        self._extents: list[Extent] = []
        self._problem: str | None = None

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        try:
            for first, block in read(self._path, self._shape, self._dtype, self._written):
                yield first, overlaid(self._changed, self._slot, first, block)
        except (OSError, Damaged) as error:
            raise self._base.reason(self._path, error) from None

    def between(self, first: int, last: int) -> Array:
        """Return rows ``first`` to ``last``, and note the checksum of their bytes."""
        header = len(header_of(self._shape, self._dtype))
        row_bytes = (file_size(self._shape, self._dtype) - header) // max(self._shape[0], 1)
        size, place = (last - first) * row_bytes, header + first * row_bytes
        data = bytes(size)
        try:
            with self._path.open("rb") as file:
                file.seek(place)
                data = exactly(file, size, self._path)
        except (OSError, Damaged) as error:
            self._problem = self._problem or str(error)
        add(self._extents, Extent(place, size, zlib.crc32(data)))
        rows = rows_in(data, last - first, self._shape, self._dtype)
        return overlaid(self._changed, self._slot, first, rows)

    def check(self) -> None:
        """Raise `Damaged` in every process where one could not read its part, or the parts are not what was written.

        All processes call this together, and have read all rows.
        """
        header = header_of(self._shape, self._dtype)
        own = [Extent(0, len(header), zlib.crc32(header)), *self._extents] if processes.is_first() else self._extents
        told = processes.said_by_all([self._problem, own])
        if problem := next((problem for problem, _ in told if problem), None):
            self._base.raise_if_vanished()
            raise Damaged(problem)
        try:
            whole = joined(Extent(*extent) for _, of_process in told for extent in of_process)
        except ValueError as error:
            raise CheckpointError(f"{self._path}: {error}") from None
        if Written(whole.size, whole.crc) != self._written:
            raise altered(self._path)


class Saved:
    """A checkpoint on disk, which its run does not remove before `close`.

    Opening it compares the sizes of all files and the content of ``about.json`` with the manifest; arrays and tables
    are compared as they are read. A link of a chain is opened with all that it stands on: the links are read and
    compared completely, and the result is the checkpoint that a full one of its step would be. Raises `Damaged` for
    damaged files or a parent that is missing or another one, and `Vanished` for a checkpoint that was removed before
    it was opened.

    Attributes:
      path: its folder.
      about: plain values that the caller saved besides the arrays.
      tables: the tables by logical name.
    """

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        """Open a checkpoint; ``alone``: a link without what it stands on, which has neither tables nor arrays."""
        self.path = path
        self._hold = Hold(path)
        self.base, self._links = self, list[Saved]()
        self.changed: dict[str, ChangedRows] = {}
        try:
            fill(path)
            self.files = read_manifest(path)
            self.about = self._read_about()
            self._need(STATE)
            if PARENT not in self.about:
                self.tables = dict(self._read_tables())
            elif not alone:
                self._open_chain()
        except Damaged:
            self.close()
            self.raise_if_vanished()
            raise

    def _open_chain(self) -> None:
        """Open what this link stands on, down to a full checkpoint; read and check all changes."""
        at: Saved = self
        while PARENT in at.about:
            self._links.append(at)
            at = self._parent(at)
        self.base, self.tables = at, at.tables
        changed = []
        for link in reversed(self._links):
            link._need(CHANGED)
            try:
                changed.append(changed_of(read_checked(link.path / CHANGED, link.files[CHANGED])))
            except ValueError as error:
                raise Damaged(f"{link.path / CHANGED}: {error}") from None
        self.changed = merged(changed)
        self._arrays = at.arrays()
        for link in reversed(self._links):
            try:
                self._arrays = patched(self._arrays, link._own_arrays(), link.about[ARRAYS])
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise Damaged(f"{link.path / STATE}: {error}") from None
        for key, table in self.tables.items():
            own = self.changed.get(key.table)
            new = None if own is None else own.arrays.get(key.slot or "")
            if own is not None and (
                new is None
                or (new.shape[1:], str(new.dtype)) != (table.shape[1:], table.dtype)
                or (len(own.rows) and own.rows[-1] >= table.shape[0])
            ):
                raise Damaged(f"{self.path / CHANGED}: does not fit {key} of {at.path}")

    @staticmethod
    def _parent(link: Saved) -> Saved:
        """Open the parent of a link, without what it stands on itself."""
        try:
            step, own = int(link.about[PARENT]["step"]), link.about[PARENT][ID]
        except (KeyError, TypeError, ValueError):
            raise Damaged(f"{link.path / ABOUT}: names its parent in a way that cannot be read") from None
        path = link.path.parent / str(step)
        try:
            held = Saved(path, alone=True)
        except (Vanished, Damaged) as error:
            raise Damaged(f"{link.path}: it stands on {path}, which cannot be used: {error}") from None
        if held.about.get(ID) != own:
            raise Damaged(f"{link.path}: it stands on another checkpoint of step {step} than {path} is")
        return held

    def close(self) -> None:
        """Release it, so that the run may remove it."""
        for held in (*self._links, self.base, self):
            held._hold.release()

    @property
    def is_link(self) -> bool:
        return bool(self._links)

    @property
    def step(self) -> int:
        return int(self.path.name)

    def arrays(self) -> dict[str, Array]:
        """Return every array that is not a table, by name."""
        return dict(self._arrays) if self.is_link else self._own_arrays()

    def _own_arrays(self) -> dict[str, Array]:
        path = self.path / STATE
        try:
            check(path, self.files[STATE])
            return safetensors.numpy.load_file(path)
        except safetensors.SafetensorError as error:
            raise Damaged(f"{path}: {error}") from None
        except (OSError, Damaged) as error:
            raise self.reason(path, error) from None

    def reason(self, path: Path, error: OSError | Damaged) -> CheckpointError:
        """Return the error to raise for a file that could not be read."""
        self.raise_if_vanished()
        return error if isinstance(error, Damaged) else unreadable(path, error)

    def rows(self, key: Key) -> SavedRows:
        return SavedRows(self, key)

    def _read_about(self) -> dict[str, Any]:
        self._need(ABOUT)
        data = read_checked(self.path / ABOUT, self.files[ABOUT])
        try:
            about: dict[str, Any] = json.loads(data)
            version = about["form"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Damaged(f"{self.path / ABOUT}: is not the description of a checkpoint") from None
        if version != FORMAT_VERSION:
            raise CheckpointError(
                f"{self.path}: was saved in format version {version}, and this version reads format version "
                f"{FORMAT_VERSION}; use the version of sparrow that wrote it"
            )
        if about.get(NUMBER, self.step) != self.step:
            raise Damaged(f"{self.path}: holds the checkpoint of step {about[NUMBER]}; give its folder that name")
        return about

    def _read_tables(self) -> Iterator[tuple[Key, TableFile]]:
        """Return the tables; refuse shapes that their files cannot hold before anything is allocated."""
        try:
            entries: list[_Entry] = registry.read(list[_Entry], self.about.get("tables"))
            for entry in entries:
                dtype = jnp.dtype(entry.dtype)
                if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_):
                    raise ValueError(f"{entry.dtype} is no dtype of numbers")
        except (TypeError, ValueError) as error:
            raise Damaged(f"{self.path / ABOUT}: describes a table in a way that cannot be read: {error}") from None
        for entry in entries:
            table = TableFile(entry.file, tuple(entry.shape), str(jnp.dtype(entry.dtype)))
            self._need(table.file)
            if min(table.shape, default=-1) < 0 or file_size(table.shape, table.dtype) != self.files[table.file].size:
                raise Damaged(f"{self.path / table.file}: is no file of the shape {list(table.shape)}")
            yield Key(entry.table, entry.slot), table

    def _need(self, name: str) -> None:
        if name not in self.files:
            raise Damaged(f"{self.path / name}: the manifest does not list it")

    def raise_if_vanished(self) -> None:
        """Raise `Vanished` where the run removed the folder: without locks, that happens while it is read."""
        try:
            os.stat(self.path)
        except FileNotFoundError:
            raise Vanished(f"{self.path}: was removed") from None
        except OSError:  # it exists, and cannot be examined
            return
