"""A source cut into rows to train on and rows to evaluate on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.hashing import hash_integers
from sparrow.data.keys import hashed
from sparrow.data.sources.base import BadRows, Reader, ReaderOver, Rows, Source, register_source


@register_source("held_out")
@dataclasses.dataclass(frozen=True)
class HeldOut(Source):
    """One part of another source: a share of its rows is held out, the rest is for training.

    The same rows are held out whenever, and in whichever order, they are read.

    >>> from sparrow.data import Tables
    >>> rows = Tables({"user": [1, 1, 2, 2, 3, 3], "item": [10, 11, 12, 13, 14, 15]})
    >>> for part in ("train", "evaluate"):
    ...     print(HeldOut(rows, part, share=0.5, by="user", seed=1).open(["item"]).read(0, "error").table.to_pydict())
    {'item': [10, 11, 14, 15]}
    {'item': [12, 13]}

    Attributes:
      source: the other source.
      part: "train", or "evaluate" for the rows that are held out.
      share: the share of rows that is held out, above 0 and below 1.
      by: the column whose values are held out as one, such as the user; None: each row by itself.
      seed: another seed holds other rows out.
    """

    source: Source
    part: Literal["train", "evaluate"]
    share: float = 0.1
    by: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        fields.choice_of(self, "part", "train", "evaluate")
        fields.numbers_of(self, "share", above=0, below=1)
        fields.integers_of(self, "seed", at_least=0)

    def column_names(self) -> list[str]:
        """Return the columns of the other source."""
        return self.source.column_names()

    def open(self, columns: Sequence[str]) -> Reader:
        """Open the other source."""
        needed = list(columns) if self.by is None or self.by in columns else [*columns, self.by]
        return _HeldOutReader(self, self.source.open(needed), list(columns))


class _HeldOutReader(ReaderOver):
    """The chunks of the other source, with the rows of one part."""

    def __init__(self, held_out: HeldOut, reader: Reader, columns: list[str]) -> None:
        super().__init__(reader)
        self._held_out, self._columns = held_out, columns

    @property
    def num_rows(self) -> int | None:
        """None: the rows of a part are counted by reading."""
        return None

    @property
    def fingerprint(self) -> str:
        """The other reader's, and the cut."""
        cut = self._held_out
        return f"{self.inner.fingerprint}-{cut.part}-{cut.share:g}-{cut.by}-{cut.seed}"

    @property
    def schemas(self) -> Sequence[tuple[str, dict[str, Any]]]:
        """The requested columns."""
        return [(file, {name: kinds[name] for name in self._columns}) for file, kinds in self.inner.schemas]

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        """Return the rows of the part in one chunk."""
        rows = self.inner.read(chunk, bad_rows)
        held_out = self._is_held_out(chunk, rows.table)
        kept = np.flatnonzero(held_out if self._held_out.part == "evaluate" else ~held_out)
        table = rows.table.select(self._columns).take(pa.array(kept))
        return dataclasses.replace(rows, table=table, place=lambda row: rows.place(int(kept[row])))

    def _is_held_out(self, chunk: int, table: Any) -> npt.NDArray[np.bool_]:
        cut = self._held_out
        if cut.by is None:
            keys = np.arange(table.num_rows, dtype=np.uint64) + (np.uint64(chunk) << np.uint64(40))
        else:
            keys = np.asarray(hashed(table[cut.by].combine_chunks()).values, np.uint64)
        mixed = hash_integers(keys ^ hash_integers(np.array([cut.seed], np.uint64)))
        chosen: npt.NDArray[np.bool_] = mixed < np.uint64(int(cut.share * 2**64))
        return chosen
