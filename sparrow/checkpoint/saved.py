"""`Saved`: one checkpoint, opened, held and checked."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import safetensors
import safetensors.numpy

from sparrow import processes
from sparrow.checkpoint.blocks import Array, Key, Reader, Written, file_size, read
from sparrow.checkpoint.content import ABOUT, FORMAT_VERSION, NUMBER, STATE
from sparrow.checkpoint.errors import CheckpointError, Damaged, Vanished, unreadable
from sparrow.checkpoint.extents import Extent, joined
from sparrow.checkpoint.holding import Hold
from sparrow.checkpoint.links import ARRAYS, CHANGED, ID, PARENT, changed_of, merged, overlaid, patched
from sparrow.checkpoint.manifest import check, read_checked, read_manifest
from sparrow.files import fill, typed


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
    """The rows of a table or slot: all of them in blocks, by iteration; or a process's part of them."""

    def __init__(self, saved: Saved, key: Key) -> None:
        self._saved, self._key = saved, key
        self._reader: Reader | None = None

    def __iter__(self) -> Iterator[tuple[int, Array]]:
        return self._saved.blocks(self._key)

    def between(self, first: int, last: int) -> Array:
        """Return rows ``first`` to ``last``."""
        if self._reader is None:
            self._reader = self._saved.reader(self._key)
        return self._reader.between(first, last)

    def check(self) -> None:
        """Compare the checksum of the rows that all processes have read; they call this together."""
        self._saved.check_parts(self._key, self._reader or self._saved.reader(self._key))


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

    def __init__(self, path: Path) -> None:
        self.path = path
        self._hold = Hold(path)
        self._base, self._links = self, list[Saved]()
        try:
            fill(path)
            self._files = read_manifest(path)
            self.about = self._read_about()
            self._need(STATE)
            if PARENT in self.about:
                self._open_chain()
            else:
                self.tables = dict(self._read_tables())
        except Damaged:
            self.close()
            self._raise_if_vanished()
            raise

    def _open_chain(self) -> None:
        """Open what this link stands on, down to a full checkpoint; read and check all changes."""
        at: Saved = self
        while PARENT in at.about:
            self._links.append(at)
            at = self._parent(at)
        self._base, self.tables = at, at.tables
        changed = []
        for link in reversed(self._links):
            link._need(CHANGED)
            try:
                changed.append(changed_of(read_checked(link.path / CHANGED, link._files[CHANGED])))
            except ValueError as error:
                raise Damaged(f"{link.path / CHANGED}: {error}") from None
        self._changed = merged(changed)
        self._arrays = at.arrays()
        for link in reversed(self._links):
            try:
                self._arrays = patched(self._arrays, link._own_arrays(), link.about[ARRAYS])
            except (ValueError, TypeError, KeyError, IndexError) as error:
                raise Damaged(f"{link.path / STATE}: {error}") from None
        for key, table in self.tables.items():
            own = self._changed.get(key.table)
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
        held = Saved.__new__(Saved)
        held.path, held._links, held._base = path, [], held
        try:
            held._hold = Hold(path)
            fill(path)
            held._files = read_manifest(path)
            held.about = held._read_about()
            held._need(STATE)
            if PARENT not in held.about:
                held.tables = dict(held._read_tables())
        except (Vanished, Damaged) as error:
            raise Damaged(f"{link.path}: it stands on {path}, which cannot be used: {error}") from None
        if held.about.get(ID) != own:
            raise Damaged(f"{link.path}: it stands on another checkpoint of step {step} than {path} is")
        return held

    def close(self) -> None:
        """Release it, so that the run may remove it."""
        for held in (*self._links, self._base, self):
            held._hold.release()

    @property
    def is_link(self) -> bool:
        """Whether it is a link of a chain."""
        return bool(self._links)

    @property
    def step(self) -> int:
        """The step that it was saved at."""
        return int(self.path.name)

    def arrays(self) -> dict[str, Array]:
        """Return every array that is not a table, by name."""
        return dict(self._arrays) if self.is_link else self._own_arrays()

    def _own_arrays(self) -> dict[str, Array]:
        path = self.path / STATE
        try:
            check(path, self._files[STATE])
            return safetensors.numpy.load_file(path)
        except safetensors.SafetensorError as error:
            raise Damaged(f"{path}: {error}") from None
        except (OSError, Damaged) as error:
            self._raise_if_vanished()
            raise error if isinstance(error, Damaged) else unreadable(path, error) from None

    def rows(self, key: Key) -> SavedRows:
        """Return the rows of a table or slot."""
        return SavedRows(self, key)

    def blocks(self, key: Key) -> Iterator[tuple[int, Array]]:
        """Yield the rows of a table or slot in blocks, each with the number of its first; `Damaged` is raised last."""
        if self.is_link:
            own = self._changed.get(key.table)
            for first, block in self._base.blocks(key):
                yield first, overlaid(own, key.slot or "", first, block)
            return
        table = self.tables[key]
        path = self.path / table.file
        try:
            yield from read(path, table.shape, table.dtype, self._files[table.file])
        except (OSError, Damaged) as error:
            self._raise_if_vanished()
            if isinstance(error, FileNotFoundError):
                raise Damaged(f"{path}: it is missing") from None
            raise error if isinstance(error, Damaged) else unreadable(path, error) from None

    def check_parts(self, key: Key, reader: Reader) -> None:
        """Raise `Damaged` in every process where one could not read its rows, or their contents differ."""
        if self.is_link:
            self._base.check_parts(key, reader)
            return
        path, table = self.path / self.tables[key].file, self.tables[key]
        extents = reader.with_header() if processes.is_first() else reader.extents
        told = processes.said_by_all([reader.problem, extents])
        if problem := next((problem for problem, _ in told if problem), None):
            self._raise_if_vanished()
            raise Damaged(problem)
        try:
            whole = joined(Extent(*extent) for _, of_process in told for extent in of_process)
        except ValueError as error:
            raise CheckpointError(f"{path}: {error}") from None
        if Written(whole.size, whole.crc) != self._files[table.file]:
            raise Damaged(f"{path}: its bytes are not those that were written")

    def reader(self, key: Key) -> Reader:
        """Return a reader of any rows of a table or slot."""
        table = self.tables[key]
        if not self.is_link:
            return Reader(self.path / table.file, table.shape, table.dtype)
        reader, own = self._base.reader(key), self._changed.get(key.table)
        reader.change = lambda first, rows: overlaid(own, key.slot or "", first, rows)
        return reader

    def _read_about(self) -> dict[str, Any]:
        self._need(ABOUT)
        data = read_checked(self.path / ABOUT, self._files[ABOUT])
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
            entries: list[_Entry] = typed(list[_Entry], self.about.get("tables"), "tables")
            for entry in entries:
                dtype = jnp.dtype(entry.dtype)
                if not (jnp.issubdtype(dtype, jnp.number) or dtype == jnp.bool_):
                    raise ValueError(f"{entry.dtype} is no dtype of numbers")
        except (TypeError, ValueError) as error:
            raise Damaged(f"{self.path / ABOUT}: describes a table in a way that cannot be read: {error}") from None
        for entry in entries:
            table = TableFile(entry.file, tuple(entry.shape), str(jnp.dtype(entry.dtype)))
            self._need(table.file)
            if min(table.shape, default=-1) < 0 or file_size(table.shape, table.dtype) != self._files[table.file].size:
                raise Damaged(f"{self.path / table.file}: is no file of the shape {list(table.shape)}")
            yield Key(entry.table, entry.slot), table

    def _need(self, name: str) -> None:
        if name not in self._files:
            raise Damaged(f"{self.path / name}: the manifest does not list it")

    def _raise_if_vanished(self) -> None:
        """Raise `Vanished` where the run removed the folder: without locks, that happens while it is read."""
        try:
            os.stat(self.path)
        except FileNotFoundError:
            raise Vanished(f"{self.path}: was removed") from None
        except OSError:  # it exists, and cannot be examined
            return
