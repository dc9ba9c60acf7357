"""The writer of a checkpoint through Orbax: its handler fills the folder, and Orbax renames the folder at the end.

Importing Orbax takes a while, so `sparrow.checkpoint.single_writer` imports this at the first save.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp

from sparrow.checkpoint.blocks import Array, TableRows, Written, snapshot, write
from sparrow.checkpoint.content import TABLES, StateSave, copy_room, entries, file_name, write_last, write_state
from sparrow.files import sync


def _is_not_of_orbax(record: logging.LogRecord) -> bool:
    return f"{os.sep}orbax{os.sep}" not in record.pathname


# Orbax both logs and raises the errors of its background thread; raising is enough. It logs through absl, whose logger
# belongs to the user: only the records of Orbax are dropped.
logging.getLogger("absl").addFilter(_is_not_of_orbax)


class StateHandler(ocp.AsyncCheckpointHandler):  # type: ignore[misc]
    """Writer of tables in blocks of rows, and of every other array in one file.

    The caller waits while small arrays and tables are copied, and while large tables, which are too large for a second
    copy, are written to their files: the next step changes them in place. In the background the copies are written,
    all files are flushed to the disk and listed in the manifest, and the folder gets its name.
    """

    def __init__(self) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="sparrow-checkpoint")
        self._written: dict[str, Written] = {}
        self._about: dict[str, Any] = {}

    async def async_save(self, directory: Any, args: SaveArgs) -> list[Any]:
        """Do the part that the caller waits for; the futures that it returns are waited for in the background."""
        folder, save = Path(directory), args.save
        (folder / TABLES).mkdir()
        self._written = {}
        self._about = {"tables": entries(save.tables), **save.about}
        copied: list[tuple[str, TableRows, list[Array]]] = []
        room = copy_room() if save.copy_bytes is None else save.copy_bytes
        for index, (key, rows) in enumerate(save.tables.items()):
            file = file_name(index, key)
            if rows.nbytes <= room:
                room -= rows.nbytes
                copied.append((file, rows, snapshot(rows)))
            else:
                self._written[file] = write(folder / file, rows.shape, rows.array.dtype, rows.blocks())
        copies = [(file, rows.shape, rows.array.dtype, blocks) for file, rows, blocks in copied]
        return [self._pool.submit(self._write_copies, folder, copies, save.arrays)]

    def save(self, directory: Any, args: SaveArgs) -> None:
        """Raise: `AsyncCheckpointer` calls `async_save` instead."""
        raise NotImplementedError("checkpoints are written by ocp.AsyncCheckpointer")

    def restore(self, directory: Any, args: Any = None) -> Any:
        """Raise: `Saved` reads checkpoints, and checks them."""
        raise NotImplementedError("checkpoints are read by Saved")

    def finalize(self, directory: Any) -> None:
        """Write the last files, in the background; Orbax then gives the folder its name."""
        write_last(Path(directory), self._about, self._written)

    def close(self) -> None:
        """End the background thread."""
        self._pool.shutdown()

    def _write_copies(
        self, folder: Path, copies: list[tuple[str, tuple[int, ...], Any, list[Array]]], arrays: Mapping[str, Array]
    ) -> None:
        for file, shape, dtype, blocks in copies:
            self._written[file] = write(folder / file, shape, dtype, blocks)
        for file in self._written:
            sync(folder / file)
        write_state(folder, arrays)


@ocp.args.register_with_handler(StateHandler, for_save=True, for_restore=True)  # Orbax needs both
@dataclasses.dataclass
class SaveArgs(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The values to save, as Orbax takes them."""

    save: StateSave


def checkpointer() -> Any:
    """Return Orbax's writer of checkpoints in the background."""
    options = ocp.options.AsyncOptions(create_directories_asynchronously=False)
    return ocp.AsyncCheckpointer(StateHandler(), async_options=options)
