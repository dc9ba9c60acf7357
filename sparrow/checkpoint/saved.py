"""`Saved`: one checkpoint, opened and checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.numpy

from sparrow.checkpoint.blocks import Array, Key, read
from sparrow.checkpoint.errors import CheckpointError, Damaged
from sparrow.checkpoint.handler import ABOUT, FORM, STATE
from sparrow.checkpoint.manifest import check, read_manifest


class TableFile(NamedTuple):
    """Where the rows of a table or slot are."""

    file: str
    shape: tuple[int, ...]
    dtype: str


class Saved:
    """A checkpoint on disk. Opening it compares all files but the tables with the manifest; these are as they are read.

    Attributes:
      path: its folder.
      about: what the caller saved beside the arrays.
      tables: by logical name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = read_manifest(path)
        self._need(ABOUT)
        check(path / ABOUT, self._files[ABOUT])
        self.about: dict[str, Any] = json.loads((path / ABOUT).read_text(encoding="utf-8"))
        if self.about["form"] != FORM:
            raise CheckpointError(
                f"{path}: was saved in form {self.about['form']}, and this version reads form {FORM}; "
                "use the version of sparrow that wrote it"
            )
        self._need(STATE)
        self.tables = {
            Key(entry["table"], entry["slot"]): TableFile(entry["file"], tuple(entry["shape"]), entry["dtype"])
            for entry in self.about["tables"]
        }
        in_tables = {table.file for table in self.tables.values()}
        for name, written in self._files.items():
            if name not in in_tables:
                check(path / name, written)

    def _need(self, name: str) -> None:
        if name not in self._files:
            raise Damaged(f"{self.path / name}: the manifest does not list it")

    @property
    def step(self) -> int:
        """The step that it was saved at."""
        return int(self.path.name)

    def arrays(self) -> dict[str, Array]:
        """Every array that is no table, by name."""
        return safetensors.numpy.load_file(self.path / STATE)

    def rows(self, key: Key) -> Iterator[tuple[int, Array]]:
        """The rows of a table or slot in blocks, each with the number of its first; `Damaged` after the last."""
        table = self.tables[key]
        try:
            yield from read(self.path / table.file, table.shape, table.dtype, self._files[table.file])
        except FileNotFoundError:
            raise Damaged(f"{self.path / table.file}: it is missing") from None
