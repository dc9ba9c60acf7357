"""Deltas of an export: what changed since the export, or since the delta before, for a server that follows it.

``deltas/00000001`` and so on, in the folder of the export, each complete when it has its name::

    changed.safetensors     the changed rows of each table, in the dtype of the export (`sparrow.checkpoint.links`)
    parameters.safetensors  the dense parameters
    ids.safetensors         by dynamic table: ids that came, with their rows, and ids that went
    delta.json              number, step, time, checksums of the files above, of the export and of the delta before

A delta that is damaged, missing or of another export ends the chain: the deltas before it hold.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import safetensors
import safetensors.numpy

from sparrow.checkpoint import changed_arrays, changed_of
from sparrow.embedding import ChangedRows
from sparrow.errors import DataError
from sparrow.files import AnyPath, streamed, sync, write_durably
from sparrow.registry import read
from sparrow.serving.description import IDS, NAME, PARAMETERS
from sparrow.serving.tensors import write

FOLDER: Final = "deltas"
ABOUT: Final = "delta.json"
CHANGED: Final = "changed.safetensors"
FILES: Final = (CHANGED, PARAMETERS, IDS, ABOUT)


@dataclasses.dataclass(frozen=True)
class Version:
    """The state of a model that is served.

    Attributes:
      step: the optimizer steps it was trained for.
      delta: the number of the last delta; 0: the export alone.
      time: of the newest event that it was trained on, in seconds since 1970, or, where the data has no time, when the
        trainer took it; None: not known.
      parent: the checksum of the last delta's description, "" where there is none.
    """

    step: int
    delta: int = 0
    time: float | None = None
    parent: str = ""

    def __str__(self) -> str:
        return f"{self.step}.{self.delta}"


@dataclasses.dataclass(frozen=True)
class _About:
    """The content of ``delta.json``."""

    number: int
    step: int
    time: float
    export: str
    parent: str
    files: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Delta:
    """One delta, in memory.

    Attributes:
      version: the version that it makes.
      changed: the changed rows of each table.
      parameters: the dense parameters.
      came, went: by dynamic table, the ids that have other rows now, (N,) int64, with their rows; and those without.
    """

    version: Version
    changed: dict[str, ChangedRows]
    parameters: dict[str, Any]
    came: dict[str, tuple[Any, Any]]
    went: dict[str, Any]

    def write(self, export: Path, parent: Version) -> Version:
        """Write the delta after ``parent`` into the folder of its export, and return its version."""
        ids = {f"went/{table}": rows for table, rows in self.went.items()}
        for table, (own, rows) in self.came.items():
            ids |= {f"came/{table}": own, f"rows/{table}": rows}
        files = {CHANGED: changed_arrays(self.changed), PARAMETERS: self.parameters, **({IDS: ids} if ids else {})}
        number, version = parent.delta + 1, self.version
        path = folder_of(export, number)
        partial = path.with_name(f".{path.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        sums = {name: write(partial / name, streamed(arrays)).sha256 for name, arrays in files.items()}
        about = _About(number, version.step, version.time or 0.0, checksum(export), parent.parent, sums)
        text = json.dumps(dataclasses.asdict(about), indent=1).encode()
        write_durably(partial / ABOUT, text)
        partial.rename(path)
        sync(path.parent)
        return dataclasses.replace(version, delta=number, parent=hashlib.sha256(text).hexdigest())

    @classmethod
    def read(cls, export: AnyPath, after: Version, base: str) -> Delta | None:
        """Return the delta after a version of the export with checksum ``base``; None: there is none yet.

        All of it is compared with its checksums before anything is used; raise `DataError` where it is damaged.
        """
        folder = folder_of(export, after.delta + 1)
        try:
            if not (folder / ABOUT).is_file():
                return None
            text = (folder / ABOUT).read_bytes()
            about: _About = read(_About, json.loads(text))
            if (about.number, about.parent) != (after.delta + 1, after.parent) or about.export != base:
                raise ValueError("it belongs to another export, or follows another delta")
            data = {name: (folder / name).read_bytes() for name in FILES if name in about.files}
            for name, content in data.items():
                if hashlib.sha256(content).hexdigest() != about.files[name]:
                    raise ValueError(f"{name}: its checksum is not the one it was written with")
            ids = safetensors.numpy.load(data[IDS]) if IDS in data else {}
            own: dict[str, dict[str, Any]] = {kind: {} for kind in ("came", "rows", "went")}
            for key, array in ids.items():
                kind, _, table = key.partition("/")
                own[kind][table] = array
            return cls(
                Version(about.step, about.number, about.time, hashlib.sha256(text).hexdigest()),
                changed_of(data[CHANGED]),
                safetensors.numpy.load(data[PARAMETERS]),
                {table: (array, own["rows"][table]) for table, array in own["came"].items()},
                own["went"],
            )
        except (OSError, ValueError, KeyError, RecursionError, safetensors.SafetensorError) as error:
            raise DataError(f"this delta cannot be used: {error}", str(folder)) from None

    def fitting(self, tables: Mapping[str, Any], parameters: Mapping[str, Any]) -> Delta:
        """Return the delta, which fits these tables and parameters; else raise `DataError`."""
        for name, own in self.changed.items():
            new, held = own.arrays.get(""), tables.get(name)
            if (
                new is None
                or held is None
                or (new.shape[1:], new.dtype) != (held.shape[1:], held.dtype)
                or own.rows.max(initial=-1) >= len(held)
            ):
                raise DataError(f"delta {self.version.delta} does not fit the table '{name}' of the export")
        for name, array in parameters.items():
            new = self.parameters.get(name)
            if new is None or (new.shape, str(new.dtype)) != (array.shape, str(array.dtype)):
                raise DataError(f"delta {self.version.delta} does not fit the parameter '{name}' of the export")
        for name, (ids, rows) in self.came.items():
            limit = len(tables[name]) if name in tables else 0
            sound = ids.dtype == np.int64 and rows.dtype == np.int32 and ids.shape == rows.shape == (len(ids),)
            if not sound or (len(rows) and (rows.min() < 0 or rows.max() >= limit)):
                raise DataError(f"delta {self.version.delta} does not fit the ids of table '{name}'")
        return self


def folder_of(export: Any, number: int) -> Any:
    """Return the folder of a delta."""
    return export / FOLDER / f"{number:08}"


def checksum(export: AnyPath) -> str:
    """Return the checksum of an export's description, which changes with anything in it."""
    return hashlib.sha256((export / NAME).read_bytes()).hexdigest()
