"""Rows of a source by keys: the first row of each item, and the pairs of some users."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.converter import Converter
from sparrow.data.errors import Problems
from sparrow.data.labels import keys
from sparrow.data.sources.base import BadRows, Source
from sparrow.data.sources.memory import Tables

Keys = npt.NDArray[np.int64]


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
    for chunk in range(reader.num_chunks):
        table = reader.read(chunk, bad_rows).table.select(columns).combine_chunks()
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
    converter = Converter([], [], [], list(dict.fromkeys([owner, key])))
    reader = source.open(converter.columns)
    converter.check(reader)
    pairs = [np.zeros((0, 2), np.int64)]
    for chunk in range(reader.num_chunks):
        found = converter.convert(reader.read(chunk, bad_rows), bad_rows)[0].to_batch().keys
        of_them = np.isin(found[owner], owners)
        pairs.append(np.stack([found[owner][of_them], found[key][of_them]], axis=1))
    distinct = np.unique(np.concatenate(pairs), axis=0)
    return distinct[:, 0], distinct[:, 1]
