"""The manifest of a checkpoint: every file with its size and checksum, written last."""

from __future__ import annotations

import json
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sparrow.checkpoint.blocks import Written
from sparrow.checkpoint.errors import Damaged, unreadable
from sparrow.files import UnsafePath, inside, write_durably

NAME: Final = "manifest.json"
PIECE: Final = 1 << 20


def write_manifest(folder: Path, known: Mapping[str, Written], leave_out: frozenset[str]) -> None:
    """List all files of the folder. ``known`` files were summed while they were written; the others are read."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    listed = {name: known[name] if name in known else sum_up(folder / name) for name in names if name not in leave_out}
    files = {name: {"size": written.size, "crc32": written.crc} for name, written in listed.items()}
    write_durably(folder / NAME, json.dumps({"crc32": _crc(files), "files": files}, indent=1).encode())


def read_manifest(folder: Path) -> dict[str, Written]:
    """Return the size and checksum of each file of a checkpoint.

    Raises `Damaged` where the manifest is damaged, names a file outside of the folder, or a file has another size.
    """
    try:
        data = json.loads((folder / NAME).read_bytes())
        files, crc = data["files"], data["crc32"]
        if _crc(files) != crc:
            raise ValueError
        listed = {name: Written(int(entry["size"]), int(entry["crc32"])) for name, entry in files.items()}
    except FileNotFoundError:
        raise Damaged(f"{folder / NAME}: it is missing") from None
    except OSError as error:
        raise unreadable(folder / NAME, error) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError):
        raise Damaged(f"{folder / NAME}: its bytes are not those that were written") from None
    for name, written in listed.items():
        try:
            held = inside(folder, name).stat()
        except UnsafePath as error:
            raise Damaged(f"{folder / NAME}: {error}") from None
        except FileNotFoundError:
            raise Damaged(f"{folder / name}: it is missing") from None
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
        raise Damaged(f"{path}: its bytes are not those that were written")


def read_checked(path: Path, written: Written) -> bytes:
    """Return the bytes of a small file, or raise `Damaged` where they differ from the ones that were written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Damaged(f"{path}: it is missing") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if Written(len(data), zlib.crc32(data)) != written:
        raise Damaged(f"{path}: its bytes are not those that were written")
    return data


def _crc(files: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(files, sort_keys=True).encode())
