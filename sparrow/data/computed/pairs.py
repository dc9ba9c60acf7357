"""Keys with values in a column, such as ``shoes:3|hats:1``, and the search for keys in them, all rows at once."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.errors import Problems
from sparrow.data.expressions.functions import by_row
from sparrow.data.hashing import U64, HashTable, hash_texts, mix64
from sparrow.data.values import cut, element_type, flatten, is_text, numbers, plain

MOST_COMPARED: Final = 4
"""Keys are compared with all pairs of their row up to this number of times the keys and pairs, else hashed."""
Combiner = Literal["sum", "mean", "min", "max", "count"]


class Pairs(NamedTuple):
    """All pairs of a column: strings, an Arrow array of values (missing where a key stands alone), the row of each."""

    keys: Any
    values: Any
    rows: npt.NDArray[np.int64]


def read_pairs(column: Any, separator: str | None, pair_separator: str) -> Pairs:
    """Return the pairs of a column of maps, of lists of "key:value", or of strings with several of them.

    >>> pairs = read_pairs(pa.array(["a:1|b", None, "c:2"]), "|", ":")
    >>> pairs.keys.to_pylist(), pairs.values.to_pylist(), pairs.rows.tolist()
    (['a', 'b', 'c'], ['1', None, '2'], [0, 0, 2])
    """
    kind = column.type
    if pa.types.is_map(kind):
        struct = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        flat = flatten(column.cast(pa.list_(struct)), None)
        keys, values = flat.entries.field("key"), plain(flat.entries.field("value"))
    else:
        flat = flatten(column, separator)
        keys, values = cut(texts_of(flat.entries), pair_separator)
    return Pairs(texts_of(keys), values, flat.rows)


def read_keys(column: Any, separator: str | None) -> tuple[Any, npt.NDArray[np.int64]]:
    """Return the keys of a column of single values, lists or separated strings, as strings, and the row of each.

    Missing keys and empty ones are left out.
    """
    flat = flatten(column, separator)
    keys, rows = texts_of(flat.entries), flat.rows
    there = pc.fill_null(pc.not_equal(keys, pa.scalar("", keys.type)), False)
    mask = there.to_numpy(zero_copy_only=False)
    return (keys, rows) if mask.all() else (keys.filter(there), rows[mask])


def texts_of(entries: Any) -> Any:
    """Return entries as strings: 17 is "17"."""
    entries = plain(entries)
    return entries if is_text(entries.type) else entries.cast(pa.string())


def in_row(keys: Any, rows: npt.NDArray[np.int64]) -> U64:
    """Return 64 bits for each key in its row: equal keys of different rows differ."""
    return mix64(hash_texts(keys) ^ mix64(rows.astype(np.uint64)))


def find_keys(pairs: Pairs, keys: Any, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the place of each key among the pairs of its row, the first where there are several; -1: it has none.

    >>> pairs = read_pairs(pa.array(["a:1|b:2", "a:3"]), "|", ":")
    >>> find_keys(pairs, pa.array(["b", "c", "a"]), np.array([0, 0, 1])).tolist()
    [1, -1, 2]
    """
    counts = np.bincount(pairs.rows, minlength=int(rows.max(initial=-1)) + 1)
    compared = counts[rows]  # the pairs that a key is compared with
    if compared.sum() > MOST_COMPARED * (len(rows) + len(pairs.rows)):
        return HashTable(in_row(pairs.keys, pairs.rows)).find(in_row(keys, rows)).astype(np.int64)
    key = np.repeat(np.arange(len(rows)), compared)
    first = (np.cumsum(counts) - counts)[rows] - (np.cumsum(compared) - compared)
    place = np.repeat(first, compared) + np.arange(len(key))
    hits = np.flatnonzero(hash_texts(pairs.keys)[place] == hash_texts(keys)[key])[::-1]  # so that the first one stays
    found = np.full(len(rows), -1, np.int64)
    found[key[hits]] = place[hits]
    return found


def refuse_pairs(words: str, kind: Any) -> str | None:
    """Return the sentence on a column that holds neither maps nor strings."""
    if pa.types.is_map(kind) or is_text(element_type(kind)):
        return None
    return f"{words} maps, or strings such as 'a:1', the column holds {kind}"


def combined(
    values: Any, rows: npt.NDArray[np.int64], count: int, combiner: str, column: str, problems: Problems
) -> Any:
    """Return one number for each of ``count`` rows, from values whose ``rows`` increase; missing where none is."""
    offsets = np.searchsorted(rows, np.arange(count + 1))
    lengths = np.diff(offsets)
    if combiner == "count":
        return pa.array(lengths.astype(np.float64), mask=lengths == 0)
    parsed = numbers(values)
    parsed.report(column, problems, rows.__getitem__, missing="a key that is looked up has no value")
    reduce = {"min": np.minimum, "max": np.maximum}.get(combiner, np.add)
    made = by_row(reduce, parsed.values, offsets, 0.0)
    if combiner == "mean":
        made = made / np.maximum(lengths, 1)
    return pa.array(made, mask=lengths == 0)


def listed(values: Any, rows: npt.NDArray[np.int64], count: int) -> Any:
    """Return a list of values for each of ``count`` rows, from values whose ``rows`` increase; missing where empty."""
    offsets = np.searchsorted(rows, np.arange(count + 1))
    return pa.LargeListArray.from_arrays(offsets, values, mask=pa.array(np.diff(offsets) == 0))
