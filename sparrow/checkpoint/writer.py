"""The writer of one checkpoint, by one process or by several, each its own rows; complete, or not there.

The first process makes the files in a temporary folder, and every process writes the rows that its devices hold
(`PartFile`): large tables at once, which the next step changes in place and which are too large for a second copy;
copies of others in the background, of a GPU's in its own memory where it has the space. When all have flushed their
parts, the first process joins the checksums to the manifest and renames the folder. A failure of one process leaves
nothing, and every process raises its reason. All processes see the folder: a shared file system.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from sparrow import processes
from sparrow.checkpoint.blocks import Array, Key, TableRows, Written, as_bytes, file_size, header_of
from sparrow.checkpoint.content import (
    COPY_BYTES,
    IN_WORK,
    TABLES,
    copy_limit,
    entries,
    file_name,
    write_last,
    write_state,
)
from sparrow.checkpoint.errors import CheckpointError, sentence
from sparrow.checkpoint.extents import Extent, add, joined
from sparrow.checkpoint.transfer import copied, copies_beside
from sparrow.files import sync, write_durably

WRITERS: Final = 4
"""Files that are written at a time: a thread sums up and writes about 1 GB/s."""
_NUMBERS: Final = itertools.count()  # all processes save the same checkpoints in the same order


Tables = Mapping[Key, TableRows]
"""Rows by logical name."""


def begin(
    path: Path,
    tables: Tables,
    arrays: Mapping[str, Array],
    about: Mapping[str, Any],
    copy_bytes: int | None,
    claim: Callable[[], None],
) -> Callable[[], None]:
    """Write large tables and copy others, and return the rest of the work; all processes call this together.

    The work gives the folder its name, or raises `CheckpointError`. The tables may change before it is called. Other
    arrays are on the host; ``about``: plain values; ``copy_bytes``: as of `Checkpoints.save`; ``claim`` is called by
    the first process before the first file is made.
    """
    temporary, number = path.with_name(f"{path.name}{IN_WORK}"), next(_NUMBERS)
    part = PartFile(temporary)
    beside = copies_beside(rows.array for rows in tables.values() if rows.spread is None) if copy_bytes is None else {}
    left = copy_bytes
    if left is None:
        left = copy_limit() if processes.count() == 1 else COPY_BYTES
    later: dict[str, tuple[tuple[int, ...], Any, Iterable[tuple[int, Array]]]] = {}
    now: dict[str, TableRows] = {}
    for index, (key, rows) in enumerate(tables.items()):
        file, kind = file_name(index, key), (rows.shape, rows.array.dtype)
        if (copy := beside.get(id(rows.array))) is not None:
            later[file] = (*kind, rows._replace(array=copy).pieces())
        elif rows.nbytes > left:
            now[file] = rows
        else:
            left -= rows.nbytes
            later[file] = (
                *kind,
                [(0, copied(*kind, rows.blocks()))] if processes.count() == 1 else list(rows.pieces()),
            )

    def make() -> None:
        claim()
        _make_files(temporary, tables)

    begins_here = bool(now) or processes.count() > 1
    if begins_here:
        processes.led(make, CheckpointError)
    for file, rows in now.items():
        part.write(file, rows.shape, rows.array.dtype, rows.pieces())

    def finish() -> None:
        if not begins_here:
            make()
        with concurrent.futures.ThreadPoolExecutor(WRITERS, thread_name_prefix="sparrow-write") as pool:
            list(pool.map(lambda file: part.write(file, *later.pop(file)), list(later)))
        error, written = part.error or _tried(part.finish), dict[str, Written]()
        if processes.is_first():
            error = error or _tried(lambda: written.update(write_state(temporary, arrays)))
        errors = processes.everyone(f"saved/{number}", error)
        failed = next((f"process {who}: {text}" for who, text in enumerate(errors) if text is not None), None)
        failed = error if len(errors) == 1 else failed
        if processes.is_first():
            failed = failed or _tried(lambda: _commit(path, temporary, tables, about, written))
            if failed is not None:
                shutil.rmtree(temporary, ignore_errors=True)  # frees space on a full disk
        failed = processes.of_first(f"committed/{number}", failed)
        if failed is not None:
            raise CheckpointError(f"{path.parent}: a checkpoint could not be saved: {failed}")

    return finish


class PartFile:
    """Writer of a process's rows.

    Attributes:
      error: the reason of the first failure, after which nothing more is written; None: there was none.
    """

    def __init__(self, folder: Path) -> None:
        self.error: str | None = None
        self._folder = folder
        self._extents: dict[str, list[Extent]] = {}

    @staticmethod
    def all(folder: Path) -> list[Path]:
        """Return the lists of all processes."""
        return [folder / f"part-{number}.json" for number in range(processes.count())]

    def write(self, file: str, shape: tuple[int, ...], dtype: Any, pieces: Iterable[tuple[int, Array]]) -> None:
        """Write pieces of a table, each with its first row; the file has its size already."""
        header = header_of(shape, dtype)
        extents = self._extents.setdefault(file, [])
        if processes.is_first():
            extents.append(Extent(0, len(header), zlib.crc32(header)))
        for first, rows in pieces:  # they come by collectives: a process takes all of them, also after an error
            data: Any = as_bytes(rows)
            place = len(header) + first * (len(data) // max(len(rows), 1))
            add(extents, Extent(place, len(data), zlib.crc32(data)))
            if self.error is None and (error := _tried(_put, self._folder / file, data, place)) is not None:
                self.error = error  # never None again: other threads write beside this one

    def finish(self) -> None:
        """Flush the files to the disk, and write the list."""
        for file in self._extents:
            sync(self._folder / file)
        write_durably(self.all(self._folder)[processes.index()], json.dumps(self._extents).encode())


def _put(path: Path, data: Any, place: int) -> None:
    descriptor, view = os.open(path, os.O_WRONLY), memoryview(data)
    try:
        while view:
            done = os.pwrite(descriptor, view, place)
            view, place = view[done:], place + done
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(descriptor)


def _tried(work: Callable[..., None], *given: Any) -> str | None:
    """Return the reason of a failure; None: there was none."""
    try:
        work(*given)
    except (OSError, ValueError) as error:
        return sentence(error)
    return None


def _make_files(temporary: Path, tables: Tables) -> None:
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        (temporary / TABLES).mkdir(parents=True)
        for index, (key, rows) in enumerate(tables.items()):
            header = header_of(rows.shape, rows.array.dtype)
            with (temporary / file_name(index, key)).open("wb", buffering=0) as file:
                file.write(header)
                file.truncate(len(header) + rows.nbytes)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)  # frees space on a full disk
        raise CheckpointError(f"{temporary.parent}: a checkpoint could not be saved: {sentence(error)}") from None


def _commit(path: Path, temporary: Path, tables: Tables, about: Mapping[str, Any], written: dict[str, Written]) -> None:
    """Check that the parts are complete, write the last files, and give the folder its name."""
    parts = [json.loads(part.read_text()) for part in PartFile.all(temporary)]
    for index, (key, rows) in enumerate(tables.items()):
        file = file_name(index, key)
        whole = joined(Extent(*extent) for part in parts for extent in part.get(file, ()))
        if whole.size != file_size(rows.shape, rows.array.dtype):
            raise ValueError(f"{file}: the processes wrote {whole.size} bytes of it; do all of them see this folder?")
        written[file] = Written(whole.size, whole.crc)
    for part in PartFile.all(temporary):
        part.unlink()
    write_last(temporary, {"tables": entries(tables), **about}, written)
    os.rename(temporary, path)
    sync(path.parent)
