"""The content of a checkpoint, as a handler of Orbax: it fills the folder, and Orbax renames the folder at the end."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import orbax.checkpoint as ocp
import safetensors.numpy

from sparrow.checkpoint.blocks import Array, Key, Rows, Written, snapshot, write
from sparrow.checkpoint.manifest import write_manifest
from sparrow.embedding import free_memory
from sparrow.files import sync, write_durably

FORMAT_VERSION: Final = 2
ABOUT: Final = "about.json"
NUMBER: Final = "number"
"""The field of ``about.json`` that holds the step in the folder's name."""
TABLES: Final = "tables"
STATE: Final = "state.safetensors"
COPY_BYTES: Final = 32 << 20
"""Tables of up to COPY_BYTES in all are copied, and written while training continues, where they are in the memory of
the host already."""
COPY_SHARE: Final = 0.25
"""The share of the free host memory that copies of the tables of a GPU may take."""

ORBAX_OWN: Final = frozenset({"_CHECKPOINT_METADATA", "commit_success.txt"})
"""Files that Orbax writes after the manifest; nothing here reads them."""


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

    async def async_save(self, directory: Any, args: StateSave) -> list[Any]:
        """Do the part that the caller waits for; the futures that it returns are waited for in the background."""
        folder = Path(directory)
        (folder / TABLES).mkdir()
        self._written = {}
        self._about = {"tables": entries(args.tables), **args.about}
        copied: list[tuple[str, Rows, list[Array]]] = []
        room = copy_room() if args.copy_bytes is None else args.copy_bytes
        for index, (key, rows) in enumerate(args.tables.items()):
            file = file_name(index, key)
            if rows.nbytes <= room:
                room -= rows.nbytes
                copied.append((file, rows, snapshot(rows)))
            else:
                self._written[file] = write(folder / file, rows.shape, rows.array.dtype, rows.blocks())
        copies = [(file, rows.shape, rows.array.dtype, blocks) for file, rows, blocks in copied]
        return [self._pool.submit(self._write_copies, folder, copies, args.arrays)]

    def save(self, directory: Any, args: StateSave) -> None:
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
class StateSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The values to save: rows by logical name, other arrays on the host, and plain values for ``about.json``."""

    tables: Mapping[Key, Rows]
    arrays: Mapping[str, Array]
    about: Mapping[str, Any]
    copy_bytes: int | None = None  # the most bytes of tables that are copied; None: `copy_room`


def copy_room() -> int:
    """Return the bytes of tables that a save may copy to host memory by default."""
    free = free_memory()
    if jax.default_backend() == "cpu" or free is None:
        return COPY_BYTES
    return max(int(COPY_SHARE * free), COPY_BYTES)


def write_state(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Write every array that is not a table."""
    # Through bytes: the library's own function for files does not raise where the disk is full.
    write_durably(folder / STATE, safetensors.numpy.save({name: _contiguous(arrays[name]) for name in arrays}))


def write_last(folder: Path, about: Mapping[str, Any], written: Mapping[str, Written]) -> None:
    """Write the description and the manifest, which make a folder a checkpoint."""
    write_durably(folder / ABOUT, json.dumps({"form": FORMAT_VERSION, **about}, indent=1).encode())
    write_manifest(folder, written, leave_out=ORBAX_OWN)
    for name in (TABLES, "."):
        sync(folder / name)


def _contiguous(array: Array) -> Array:
    """Return the array row by row in memory, because the library writes the memory unchanged."""
    return np.require(array, requirements="C")


def entries(tables: Mapping[Key, Rows]) -> list[dict[str, Any]]:
    """Return the tables as ``about.json`` lists them."""
    return [
        {
            "table": key.table,
            "slot": key.slot,
            "file": file_name(index, key),
            "shape": list(rows.shape),
            "dtype": str(rows.array.dtype),
        }
        for index, (key, rows) in enumerate(tables.items())
    ]


def file_name(index: int, key: Key) -> str:
    """Return a file name that people recognize, for any name of a table; the number makes it unique."""
    name = key.table if key.slot is None else f"{key.table}.{key.slot}"
    return f"{TABLES}/{index:04}-{urllib.parse.quote(name, safe=' ')[:100]}.npy"
