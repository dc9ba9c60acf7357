"""Rows of a source by keys: how often each item occurs, the first row of each, and the pairs of some users."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.converter import Converter
from sparrow.data.counting import Counter
from sparrow.data.errors import DataError, Problems
from sparrow.data.labels import keys, refuse_single
from sparrow.data.sources.base import BadRows, Source
from sparrow.data.sources.memory import Tables

Keys = npt.NDArray[np.int64]


class ItemCounts:
    """The rows of each item, counted exactly in one pass over one column, on first use.

    A checkpoint holds the counts (`state`, `restore`), so that a run counts once.

    >>> from sparrow.data import Tables
    >>> counts = ItemCounts(Tables({"item": [7, 7, 7, 9]}), "item")
    >>> np.exp(counts.log_q(np.array([7, 9, 8]))).round(2).tolist()  # an unknown item counts as one that occurs once
    [0.75, 0.25, 0.25]
    """

    def __init__(self, source: Source, column: str, bad_rows: BadRows = "error") -> None:
        self.column = column
        self._source, self._bad_rows = source, bad_rows
        self._counted: tuple[Keys, npt.NDArray[np.int64]] | None = None
        self._logs: tuple[Keys, npt.NDArray[np.float32], np.float32] | None = None
        self._lock = threading.Lock()

    @property
    def counted(self) -> tuple[Keys, npt.NDArray[np.int64]]:
        """The keys of the items in ascending order, and the rows of each."""
        with self._lock:
            if self._counted is None:
                self._counted = counted(self._source, self.column, self._bad_rows)
            return self._counted

    def log_q(self, keys: Keys) -> npt.NDArray[np.float32]:
        """Return the logarithm of each item's share of the rows."""
        if self._logs is None or self._logs[0] is not self.counted[0]:
            items, rows = self.counted
            logs = np.log(np.append(rows, 1) / rows.sum()).astype(np.float32)
            self._logs = items, logs[:-1], logs[-1]
        known, logs, unknown = self._logs
        place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[place] == keys, logs[place], unknown)

    def state(self) -> dict[str, npt.NDArray[np.int64]]:
        keys, rows = self.counted
        return {"keys": keys, "rows": rows}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Take the counts of a checkpoint; without any, they are counted on first use."""
        with self._lock:
            self._counted = (np.array(arrays["keys"]), np.array(arrays["rows"])) if arrays else None


def holds_one_key(source: Source, column: str) -> bool:
    """Return whether each row of a column holds one integer or string, and not a list."""
    _, kinds = source.open([column]).schemas[0]
    return refuse_single("", kinds[column]) is None


def counted(source: Source, column: str, bad_rows: BadRows) -> tuple[Keys, npt.NDArray[np.int64]]:
    """Return the distinct keys of a column in ascending order, and the rows of each."""
    counter = Counter(pa.int64())
    for found in _keys_of(source, [column], bad_rows):
        counter.add(pa.array(found[column]))
    made = counter.merged().sort_by("value")
    if not made.num_rows:
        raise DataError("there are no items to count", source.open([column]).schemas[0][0], column=column)
    return made["value"].to_numpy(), made["count"].to_numpy()


def _keys_of(source: Source, columns: list[str], bad_rows: BadRows) -> Iterator[dict[str, Keys]]:
    """Yield the keys in some columns, a chunk at a time."""
    converter = Converter([], [], [], columns)
    reader = source.open(converter.columns)
    converter.check(reader)
    for chunk in range(reader.num_chunks):
        yield converter.convert(reader.read(chunk, bad_rows), bad_rows)[0].to_batch().keys


def distinct_rows(source: Source, columns: Sequence[str], key: str, bad_rows: BadRows = "error") -> Tables:
    """Return the first row of each value of the column ``key``, in the order of the source.

    Rows without a value are left out.

    >>> rows = distinct_rows(Tables({"item": [5, 6, 5], "price": [1, 2, 3]}), ["item", "price"], "item")
    >>> rows.open(["item", "price"]).read(0, "error").table.to_pydict()
    {'item': [5, 6], 'price': [1, 2]}
    """
    columns = list(dict.fromkeys(columns))
    reader = source.open(columns)
    known, parts = np.zeros(0, np.int64), []
    for table in (own.select(columns).combine_chunks() for own in reader.tables(bad_rows)):
        batch = table.select([key]).to_batches() or [pa.RecordBatch.from_pylist([], schema=table.select([key]).schema)]
        problems = Problems(table.num_rows)
        found = keys(batch[0], key, problems)
        usable = np.ones(len(found), np.bool_) if problems.rows is None else ~problems.rows
        new, first = np.unique(found[usable], return_index=True)
        is_new = ~np.isin(new, known, assume_unique=True)
        parts.append(table.take(pa.array(np.sort(np.flatnonzero(usable)[first[is_new]]))))
        known = np.union1d(known, new[is_new]) if is_new.any() else known
    return Tables(pa.concat_tables(parts))


def key_pairs(
    source: Source, owner: str, key: str, owners: Keys, bad_rows: BadRows = "error"
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct pairs of two columns of keys, for some values of the first.

    >>> rows = Tables({"user": [1, 2, 1, 1], "item": [7, 7, 7, 8]})
    >>> [column.tolist() for column in key_pairs(rows, "user", "item", np.array([1]))]
    [[1, 1], [7, 8]]
    """
    pairs = [np.zeros((0, 2), np.int64)]
    for found in _keys_of(source, list(dict.fromkeys([owner, key])), bad_rows):
        of_them = np.isin(found[owner], owners)
        pairs.append(np.stack([found[owner][of_them], found[key][of_them]], axis=1))
    distinct = np.unique(np.concatenate(pairs), axis=0)
    return distinct[:, 0], distinct[:, 1]
