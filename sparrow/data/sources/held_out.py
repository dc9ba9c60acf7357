"""A source cut into rows to train on and rows to evaluate on."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.data.errors import DataError
from sparrow.data.hashing import hash_integers, hashed
from sparrow.data.sources.base import BadRows, Reader, ReaderOver, Rows, Source, register_source
from sparrow.data.values import holds_values, is_list
from sparrow.kernels.feed import Encoded, EncodedText


@register_source("held_out")
@dataclasses.dataclass(frozen=True)
class HeldOut(Source):
    """One part of another source: a share of its rows is held out, the rest is for training.

    The same rows are held out whenever, and in whichever order, they are read: rows at random, all rows of some values
    of a column, or the newest rows. For the newest, one pass over the column finds where they begin, which holds a
    number per row in memory.

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
      time: the column of the time: the newest rows are held out, and those as old as the oldest of these. A row without
        a time is for training.
    """

    source: Source
    part: Literal["train", "evaluate"]
    share: Annotated[float, fields.Bounds(above=0, below=1)] = 0.1
    by: str | None = None
    seed: Annotated[int, fields.Bounds(at_least=0)] = 0
    time: str | None = None

    def __post_init__(self) -> None:
        if self.by is not None and self.time is not None:
            raise ValueError("source 'held_out': by and time exclude each other; keep one")
        fields.check(self)

    def column_names(self) -> list[str]:
        return self.source.column_names()

    def open(self, columns: Sequence[str]) -> Reader:
        more = [column for column in (self.by, self.time) if column is not None and column not in columns]
        needed = [*columns, *more]
        return _HeldOutReader(self, self.source.open(needed), list(columns))


class _HeldOutReader(ReaderOver):
    """The chunks of the other source, with the rows of one part."""

    def __init__(self, held_out: HeldOut, reader: Reader, columns: list[str]) -> None:
        super().__init__(reader)
        self._held_out, self._columns = held_out, columns
        self.schemas = [(file, {name: kinds[name] for name in columns}) for file, kinds in reader.schemas]

    @property
    def num_rows(self) -> int | None:
        """None: the rows of a part are counted by reading."""
        return None

    @property
    def fingerprint(self) -> str:
        cut = self._held_out
        newest = "" if cut.time is None else f"-{cut.time}"
        return f"{self.inner.fingerprint}-{cut.part}-{cut.share:g}-{cut.by}-{cut.seed}{newest}"

    def fetch(self, chunk: int) -> Encoded | EncodedText | None:
        """Return the bytes of a chunk, where each row is held out by itself."""
        cut = self._held_out
        is_nested = isinstance(self.inner, _HeldOutReader)  # whose rows are numbered anew
        return None if cut.by is not None or cut.time is not None or is_nested else self.inner.fetch(chunk)

    def chosen(self, chunk: int, rows: int) -> npt.NDArray[np.bool_]:
        return self._of_part(self._by_number(chunk, rows))

    def read(self, chunk: int, bad_rows: BadRows) -> Rows:
        rows = self.inner.read(chunk, bad_rows)
        kept = np.flatnonzero(self._of_part(self._is_held_out(chunk, rows.table)))
        return rows.taken(kept, rows.table.select(self._columns).take(pa.array(kept)))

    def _is_held_out(self, chunk: int, table: Any) -> npt.NDArray[np.bool_]:
        cut = self._held_out
        if cut.time is not None:
            times = numbers_of(table[cut.time].combine_chunks(), cut.time)
            with np.errstate(invalid="ignore"):
                return np.asarray(times >= self._begin(cut.time))
        if cut.by is None:
            return self._by_number(chunk, table.num_rows)
        kind = table[cut.by].type
        if is_list(kind) or not holds_values(kind):
            why = f"rows are held out by integers or strings, the column holds {kind}; make a column of these"
            raise DataError(why, column=cut.by)
        return self._by_key(np.asarray(hashed(table[cut.by].combine_chunks()).values, np.uint64))

    def _of_part(self, held_out: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        return held_out if self._held_out.part == "evaluate" else ~held_out

    def _by_number(self, chunk: int, rows: int) -> npt.NDArray[np.bool_]:
        return self._by_key(np.arange(rows, dtype=np.uint64) + (np.uint64(chunk) << np.uint64(40)))

    def _by_key(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        cut = self._held_out
        mixed = hash_integers(keys ^ hash_integers(np.array([cut.seed], np.uint64)))
        return np.asarray(mixed < np.uint64(int(cut.share * 2**64)))

    def _begin(self, column: str) -> float:
        key = self.inner.fingerprint, column, self._held_out.share
        with _LOCK:
            if key not in _BEGINS:
                _BEGINS[key] = newest_from(self._held_out.source, column, self._held_out.share)
            return _BEGINS[key]


_LOCK: Final = threading.Lock()
_BEGINS: Final[dict[tuple[str, str, float], float]] = {}
"""The times from which on rows are held out, by data, column and share: found once for both parts."""


def newest_from(source: Source, column: str, share: float) -> float:
    """Return the time at which the newest share of the rows begins, exactly."""
    reader = source.open([column])
    parts = [numbers_of(table[column].combine_chunks(), column) for table in reader.tables("skip")]
    times = np.concatenate([np.zeros(0), *parts])
    times = np.sort(times[~np.isnan(times)])
    file = reader.schemas[0][0]
    if not len(times):
        raise DataError("no row has a time", file, column=column)
    begin = float(times[min(int((1 - share) * len(times)), len(times) - 1)])
    if begin <= times[0]:
        later = times[times > begin]
        if not len(later):
            raise DataError("all rows have the same time: none is newer; split in another way", file, column=column)
        begin = float(later[0])
    return begin


def numbers_of(column: Any, name: str) -> npt.NDArray[np.float64]:
    """Return times as numbers that grow with them; NaN where one is missing.

    >>> numbers_of(pa.array(["1970-01-01 00:00:01", None]), "at").tolist()
    [1000000.0, nan]
    """
    kind = column.type
    try:
        if pa.types.is_temporal(kind):
            column = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        elif not pa.types.is_integer(kind) and not pa.types.is_floating(kind):
            column = column.cast(pa.string())
            try:
                column = column.cast(pa.float64())
            except pa.ArrowInvalid:
                column = column.cast(pa.timestamp("us")).cast(pa.int64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"needs times: numbers, timestamps, dates, or strings of these: {error}", column=name) from None
    found: npt.NDArray[np.float64] = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy(
        zero_copy_only=False
    )
    return found
