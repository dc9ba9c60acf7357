"""The content of a checkpoint: the values to save, and the files that hold them."""

from __future__ import annotations

import dataclasses
import json
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import safetensors.numpy

from sparrow.checkpoint.blocks import Array, Key, TableRows, Written
from sparrow.checkpoint.manifest import write_manifest
from sparrow.checkpoint.transfer import free_memory
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


@dataclasses.dataclass(frozen=True)
class StateSave:
    """The values to save: rows by logical name, other arrays on the host, and plain values for ``about.json``."""

    tables: Mapping[Key, TableRows]
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
    # The library writes memory unchanged. Through bytes: its function for files does not raise where the disk is full.
    contiguous = {name: np.require(array, requirements="C") for name, array in arrays.items()}
    write_durably(folder / STATE, safetensors.numpy.save(contiguous))


def write_last(folder: Path, about: Mapping[str, Any], written: Mapping[str, Written]) -> None:
    """Write the description and the manifest, which make a folder a checkpoint."""
    write_durably(folder / ABOUT, json.dumps({"form": FORMAT_VERSION, **about}, indent=1).encode())
    write_manifest(folder, written, leave_out=ORBAX_OWN)
    for name in (TABLES, "."):
        sync(folder / name)


def entries(tables: Mapping[Key, TableRows]) -> list[dict[str, Any]]:
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
