"""The content of a checkpoint: the values to save, the files that hold them, and the manifest that lists these."""

from __future__ import annotations

import json
import stat
import urllib.parse
import zlib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, Final

import jax

from sparrow.checkpoint.blocks import Array, Key, TableRows, Written
from sparrow.checkpoint.errors import Damaged, altered, unreadable
from sparrow.files import UnsafePath, inside, proc_bytes, streamed, sync, write_durably, write_tensors

FORMAT_VERSION: Final = 2
ABOUT: Final = "about.json"
NUMBER: Final = "number"
"""The field of ``about.json`` that holds the step in the folder's name."""
TABLES: Final = "tables"
STATE: Final = "state.safetensors"
MANIFEST: Final = "manifest.json"
"""Every file with its size and checksum, written last."""
IN_WORK: Final = ".partial"
"""In the name of a folder that is not complete."""
PIECE: Final = 1 << 20
COPY_BYTES: Final = 32 << 20
"""Tables of up to COPY_BYTES in all are copied, and written while training continues, where they are in the memory of
the host already."""
COPY_SHARE: Final = 0.25
"""The share of the free host memory that copies of the tables of a GPU may take."""


def copy_limit() -> int:
    """Return the bytes of tables that a save may copy to host memory by default."""
    free = proc_bytes("/proc/meminfo").get("MemAvailable")
    if jax.default_backend() == "cpu" or free is None:
        return COPY_BYTES
    return max(int(COPY_SHARE * free), COPY_BYTES)


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> Written:
    """Write named arrays to a file, and wait for the disk."""
    crc = 0

    def add(data: Any) -> None:
        nonlocal crc
        crc = zlib.crc32(data, crc)

    return Written(write_tensors(path, streamed(arrays), add), crc)


def write_state(folder: Path, arrays: Mapping[str, Array]) -> dict[str, Written]:
    """Write every array that is not a table, and return the file's name and checksum."""
    return {STATE: write_arrays(folder / STATE, arrays)}


def write_last(folder: Path, about: Mapping[str, Any], written: Mapping[str, Written]) -> None:
    """Write the description and the manifest, which make a folder a checkpoint."""
    write_durably(folder / ABOUT, json.dumps({"form": FORMAT_VERSION, **about}, indent=1).encode())
    write_manifest(folder, written)
    for name in (TABLES, "."):
        sync(folder / name)


def entries(tables: Mapping[Key, TableRows]) -> list[dict[str, Any]]:
    """Return the tables as ``about.json`` lists them."""
    return [
        {**key._asdict(), "file": file_name(index, key), "shape": list(rows.shape), "dtype": str(rows.array.dtype)}
        for index, (key, rows) in enumerate(tables.items())
    ]


def file_name(index: int, key: Key) -> str:
    """Return a file name that people recognize, for any name of a table; the number makes it unique."""
    name = key.table if key.slot is None else f"{key.table}.{key.slot}"
    return f"{TABLES}/{index:04}-{urllib.parse.quote(name, safe=' ')[:100]}.npy"


def write_manifest(folder: Path, known: Mapping[str, Written], leave_out: Container[str] = ()) -> None:
    """List all files of the folder. ``known`` files were summed while they were written; the others are read."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    listed = {name: known[name] if name in known else sum_up(folder / name) for name in names if name not in leave_out}
    files = {name: {"size": written.size, "crc32": written.crc} for name, written in listed.items()}
    write_durably(folder / MANIFEST, json.dumps({"crc32": _crc(files), "files": files}, indent=1).encode())


def read_manifest(folder: Path) -> dict[str, Written]:
    """Return the size and checksum of each file of a checkpoint.

    Raises `Damaged` where the manifest is damaged, names a file outside of the folder, or a file has another size.
    """
    try:
        data = json.loads((folder / MANIFEST).read_bytes())
        files, crc = data["files"], data["crc32"]
        if _crc(files) != crc:
            raise ValueError
        listed = {name: Written(int(entry["size"]), int(entry["crc32"])) for name, entry in files.items()}
    except OSError as error:
        raise unreadable(folder / MANIFEST, error) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise altered(folder / MANIFEST) from None
    for name, written in listed.items():
        try:
            held = inside(folder, name).stat()
        except UnsafePath as error:
            raise Damaged(f"{folder / MANIFEST}: {error}") from None
        except OSError as error:
            raise unreadable(folder / name, error) from None
        if not stat.S_ISREG(held.st_mode):  # such as a pipe, which may never end
            raise Damaged(f"{folder / name}: it is not a file")
        if held.st_size != written.size:
            raise Damaged(f"{folder / name}: it has {held.st_size} bytes, {written.size} were written")
    return listed


def sum_up(path: Path) -> Written:
    """Return size and checksum of a file."""
    size = crc = 0
    with path.open("rb") as file:
        while data := file.read(PIECE):
            size, crc = size + len(data), zlib.crc32(data, crc)
    return Written(size, crc)


def check(path: Path, written: Written) -> None:
    """Read a file through, and raise `Damaged` where its bytes differ from the ones that were written."""
    if sum_up(path) != written:
        raise altered(path)


def read_checked(path: Path, written: Written) -> bytes:
    """Return the bytes of a small file, or raise `Damaged` where they differ from the ones that were written."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    if Written(len(data), zlib.crc32(data)) != written:
        raise altered(path)
    return data


def _crc(files: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(files, sort_keys=True).encode())
