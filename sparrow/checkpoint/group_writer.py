"""`GroupWriter`: one checkpoint written by several processes, each its own rows; complete, or not there.

The first process makes the files in a temporary folder, and every process writes the rows that its devices hold
(`PartFile`). When all have flushed their parts, the first process joins the checksums to the manifest and renames the
folder. A failure of one process leaves nothing, and every process raises its reason. All processes see the folder: a
shared file system.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sparrow import processes
from sparrow.checkpoint.blocks import Array, Written, as_bytes, header_of
from sparrow.checkpoint.content import COPY_BYTES, TABLES, StateSave, entries, file_name, write_last, write_state
from sparrow.checkpoint.errors import CheckpointError, sentence
from sparrow.checkpoint.extents import Extent, add, joined
from sparrow.files import sync, write_durably


class PartFile:
    """Writer of a process's rows. After an error nothing more is written, and `finish` returns the reason."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._extents: dict[str, list[Extent]] = {}
        self._error: OSError | None = None

    @staticmethod
    def all(folder: Path) -> list[Path]:
        """Return the lists of all processes."""
        return [folder / f"part-{number}.json" for number in range(processes.count())]

    def write(self, file: str, shape: tuple[int, ...], dtype: Any, pieces: Iterator[tuple[int, Array]]) -> None:
        """Write pieces of a table, each with its first row; the file has its size already."""
        header = header_of(shape, dtype)
        extents = self._extents.setdefault(file, [])
        if processes.is_first():
            extents.append(Extent(0, len(header), zlib.crc32(header)))
        descriptor = self._opened(file)
        try:
            for first, rows in pieces:
                data: Any = as_bytes(rows)
                row_bytes = len(data) // max(len(rows), 1)
                place = len(header) + first * row_bytes
                if descriptor is not None and self._error is None:
                    self._put(descriptor, file, data, place)
                add(extents, Extent(place, len(data), zlib.crc32(data)))
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def finish(self) -> str | None:
        """Flush the files to the disk and write the list; return the reason of the first failure, if any."""
        try:
            if self._error is not None:
                raise self._error
            for file in self._extents:
                sync(self._folder / file)
            write_durably(self.all(self._folder)[processes.index()], json.dumps(self._extents).encode())
        except OSError as error:
            return sentence(error)
        return None

    def _opened(self, file: str) -> int | None:
        try:
            return os.open(self._folder / file, os.O_WRONLY)
        except OSError as error:
            self._error = self._error or error
            return None

    def _put(self, descriptor: int, file: str, data: Any, place: int) -> None:
        view = memoryview(data)
        try:
            while view:
                done = os.pwrite(descriptor, view, place)
                view, place = view[done:], place + done
        except OSError as error:
            self._error = OSError(error.errno, error.strerror, str(self._folder / file))


IN_WORK: Final = ".orbax-checkpoint-tmp-group"
"""The ending of the temporary folder; leftovers of a killed writer are removed by its beginning, as Orbax's are."""

Copies = list[tuple[str, tuple[int, ...], Any, list[tuple[int, Array]]]]


class GroupWriter:
    """Writer with the methods of Orbax's that `Checkpoints` calls. All processes call `save` together."""

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sparrow-checkpoint")
        self._saving: concurrent.futures.Future[None] | None = None
        self._number = 0

    def save(self, path: Path, args: StateSave) -> None:
        """Write large tables and copy small ones; everything else happens in the background."""
        self.wait_until_finished()
        self._number += 1
        temporary = path.with_name(path.name + IN_WORK)
        processes.led(lambda: _begin(temporary, args), CheckpointError)
        copies: Copies = []
        part = PartFile(temporary)
        room = COPY_BYTES
        for index, (key, rows) in enumerate(args.tables.items()):
            file = file_name(index, key)
            if rows.nbytes <= room:
                room -= rows.nbytes
                copies.append((file, rows.shape, rows.array.dtype, list(rows.pieces())))
            else:
                # The pieces come by collectives: each process takes all of them, also after its disk is full.
                part.write(file, rows.shape, rows.array.dtype, rows.pieces())
        self._saving = self._pool.submit(self._finish, self._number, path, temporary, part, copies, args)

    def wait_until_finished(self) -> None:
        """Wait until the checkpoint has its name, or raise the reason why it has none."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            saving.result()

    def check_for_errors(self) -> None:
        """Raise the error of the background thread, if there is one by now."""
        if self._saving is not None and self._saving.done():
            self.wait_until_finished()

    def close(self) -> None:
        """Wait, and end the background thread."""
        try:
            self.wait_until_finished()
        finally:
            self._pool.shutdown()

    def _finish(
        self, number: int, path: Path, temporary: Path, part: PartFile, copies: Copies, args: StateSave
    ) -> None:
        for file, shape, dtype, pieces in copies:
            part.write(file, shape, dtype, iter(pieces))
        error = part.finish()
        if processes.is_first() and error is None:
            error = _tried(lambda: write_state(temporary, args.arrays))
        errors = processes.everyone(f"saved/{number}", error)
        failed = next((f"process {who}: {text}" for who, text in enumerate(errors) if text is not None), None)
        key = f"sparrow/committed/{number}"
        if processes.is_first():
            if failed is None:
                failed = _tried(lambda: _commit(path, temporary, args))
            if failed is not None:
                shutil.rmtree(temporary, ignore_errors=True)  # frees space on a full disk
            processes.publish(key, failed or "")
        else:
            failed = processes.awaited(key) or None
        if failed is not None:
            raise CheckpointError(f"{path.parent}: a checkpoint could not be saved: {failed}")


def _tried(work: Any) -> str | None:
    try:
        work()
    except (OSError, ValueError) as error:
        return sentence(error)
    return None


def _begin(temporary: Path, args: StateSave) -> None:
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        (temporary / TABLES).mkdir(parents=True)
        for index, (key, rows) in enumerate(args.tables.items()):
            header = header_of(rows.shape, rows.array.dtype)
            with (temporary / file_name(index, key)).open("wb", buffering=0) as file:
                file.write(header)
                file.truncate(len(header) + rows.nbytes)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)  # frees space on a full disk
        raise CheckpointError(f"{temporary.parent}: a checkpoint could not be saved: {sentence(error)}") from None


def _commit(path: Path, temporary: Path, args: StateSave) -> None:
    """Check that the parts are complete, write the last files, and give the folder its name."""
    written: dict[str, Written] = {}
    parts = [json.loads(part.read_text()) for part in PartFile.all(temporary)]
    for index, (key, rows) in enumerate(args.tables.items()):
        file = file_name(index, key)
        extents = [Extent(*extent) for part in parts for extent in part.get(file, ())]
        whole = joined(extents)
        if whole.size != len(header_of(rows.shape, rows.array.dtype)) + rows.nbytes:
            raise ValueError(f"{file}: the processes wrote {whole.size} bytes of it; do all of them see this folder?")
        written[file] = Written(whole.size, whole.crc)
    for part in PartFile.all(temporary):
        part.unlink()
    write_last(temporary, {"tables": entries(args.tables), **args.about}, written)
    os.rename(temporary, path)
    sync(path.parent)
