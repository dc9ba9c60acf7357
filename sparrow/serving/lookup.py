"""Lookups in tables that stay in their files: only the rows of a batch are read, into one array of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from sparrow.data import DataError, HashTable, shown, without_presence
from sparrow.embedding import PackedBatch, mix64, replaced
from sparrow.kernels import Lookups
from sparrow.kernels.quantized import QuantizedTable, described, fill_rows
from sparrow.serving.description import IDS
from sparrow.serving.opened import Opened
from sparrow.serving.tensors import Array


class Places(NamedTuple):
    """The columns of the activations and numbers of a function in an array, and the width of that array."""

    acts: dict[str, slice]
    numbers: dict[str, slice]
    width: int

    @classmethod
    def of(cls, acts: Mapping[str, int], numbers: Mapping[str, int]) -> Places:
        """Return the places of inputs of the given widths.

        >>> Places.of({"user": 4}, {"price": 1})
        Places(acts={'user': slice(0, 4, None)}, numbers={'price': slice(4, 5, None)}, width=5)
        """
        made: list[dict[str, slice]] = []
        at = 0
        for widths in (acts, numbers):
            made.append({})
            for name, width in widths.items():
                made[-1][name] = slice(at, at + width)
                at += width
        return cls(made[0], made[1], at)

    def empty(self, rows: int) -> npt.NDArray[np.float32]:
        return np.zeros((rows, self.width), np.float32)

    def function(self, call: Callable[..., Any]) -> Any:
        """Return ``call(parameters, acts, numbers)`` as a jitted function of the parameters and the array."""

        def cut(inputs: jax.Array, places: Mapping[str, slice]) -> dict[str, jax.Array]:
            return {name: inputs[:, place] for name, place in places.items()}

        return jax.jit(lambda parameters, inputs: call(parameters, cut(inputs, self.acts), cut(inputs, self.numbers)))


Table = npt.NDArray[Any] | QuantizedTable
PIECE: Final = 1 << 16
"""The ids whose rows are in memory at a time: a bag may have millions of them."""


def activations(
    packed: PackedBatch, tables: Mapping[str, Table], orders: Mapping[str, tuple[npt.NDArray[Any], int]]
) -> Iterator[tuple[str, npt.NDArray[np.float32]]]:
    """Yield the input that a packed batch gives to each lookup.

    ``tables``: by stack; ``orders``: of lookups in order, where each example begins, and the most elements of one.
    """
    for stack, groups in packed.groups:
        rows, start = pooled(tables[stack], packed.lookups[stack]), 0
        for group in groups:
            stop = start + len(group.features) * group.num_bags
            block = rows[start:stop].reshape(group.num_bags, len(group.features), rows.shape[1])
            start = stop
            for i, name in enumerate(group.features):
                yield name, flat(block[:, i], *orders[name]) if name in orders else block[:, i]


def pooled(table: Table, lookups: Lookups) -> npt.NDArray[np.float32]:
    """Return each bag's rows, times their gains, summed: (num_bags, dim), as `sparrow.Embedder.lookup` computes it.

    >>> table = np.array([[1.0, 2.0], [10.0, 20.0]], np.float32)
    >>> ids, offsets = np.array([0, 1, 1, 2, 2], np.int32), np.array([0, 2, 2, 3], np.int32)  # 2 is no row: padding
    >>> pooled(table, Lookups(ids, None, offsets, None, 3)).tolist()
    [[11.0, 22.0], [0.0, 0.0], [10.0, 20.0]]
    """
    if lookups.offsets is None:
        return _scaled(table, lookups, 0, len(lookups.ids))
    offsets = np.asarray(lookups.offsets, np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    sums = np.zeros((len(ends), table.shape[1]), np.float32)
    for begin, end in _pieces(ends):
        held = np.arange(np.searchsorted(ends, begin, "right"), np.searchsorted(ends, end - 1, "right") + 1)
        held = held[ends[held] > starts[held]]  # empty bags have no entries: each other begins where the last one ends
        first = np.maximum(starts[held], begin) - begin
        sums[held] += np.add.reduceat(_scaled(table, lookups, begin, end), first, axis=0)
    return sums


def _scaled(table: Table, lookups: Lookups, begin: int, end: int) -> npt.NDArray[np.float32]:
    """Return the rows of some entries, times their gains: (end - begin, dim). An id that is no row has zeros."""
    ids: Any = lookups.ids[begin:end]
    if isinstance(table, QuantizedTable):
        rows = table.take(ids)
    else:
        rows = np.take(table, ids, axis=0, mode="clip").astype(np.float32)
        rows[ids >= len(table)] = 0.0
    if lookups.gains is not None:
        rows *= np.asarray(lookups.gains[begin:end])[:, None]
    return rows


def _pieces(ends: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the ids in pieces of up to PIECE. A bag is cut at every PIECE of its own ids, wherever it is in a batch.

    >>> list(_pieces(np.array([3, PIECE, 2 * PIECE + 4, 2 * PIECE + 9])))
    [(0, 65536), (65536, 131072), (131072, 131081)]
    """
    begin, total = 0, int(ends[-1]) if len(ends) else 0
    while begin < total:
        end = min(begin + PIECE, total)
        whole = int(np.searchsorted(ends, end, "right"))
        if whole and ends[whole - 1] > begin:
            end = int(ends[whole - 1])
        yield begin, end
        begin = end


def flat(values: npt.NDArray[Any], offsets: npt.NDArray[Any], length: int) -> npt.NDArray[np.float32]:
    """Return sequences as `sparrow.Sequence.flat` has them, with at most ``length`` elements: the last.

    >>> flat(np.array([[1.0], [2.0], [3.0]]), np.array([0, 2, 2, 3]), 2).tolist()
    [[1.0, 2.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 1.0]]
    """
    dim = values.shape[1]
    kept = np.minimum(np.diff(offsets), length)
    made = np.zeros((len(kept), length, dim), np.float32)
    place = np.arange(kept.sum()) - np.repeat(np.cumsum(kept) - kept, kept)  # of an element in its sequence
    rows = np.repeat(offsets[1:] - kept, kept) + place
    made[np.repeat(np.arange(len(kept)), kept), place] = values[rows]
    return np.concatenate([made.reshape(len(kept), length * dim), kept[:, None].astype(np.float32)], axis=1)


def width_of(length: int | None, dim: int) -> int:
    """Return the width of an input: one vector, or at most ``length`` of them in order, then their number."""
    return dim if length is None else length * dim + 1


ROW_OF_IDS: Final = 4
"""The place of the row of ids in a lookup that is `described`."""


class _Lookup(NamedTuple):
    name: str
    feature: int  # its row in the matrix of ids
    table: Table
    place: slice


class PlainLookups:
    """Lookups in tables of any dtype, for the features that have one id in every row of a batch."""

    def __init__(self, tables: Mapping[str, Table], features: Mapping[str, str], places: Mapping[str, slice]) -> None:
        """Take the table, the feature and the place of each lookup, by its name."""
        rows: dict[str, int] = {}
        for name, table in tables.items():
            feature = features[name]
            rows[feature] = min(len(table), rows.get(feature, len(table)))
        self._features, self._rows = list(rows), np.array(list(rows.values()), np.uint32)[:, None]
        self._lookups = [
            _Lookup(name, self._features.index(features[name]), table, places[name]) for name, table in tables.items()
        ]
        self._names = [lookup.name for lookup in self._lookups]
        described_ = [described(table, feature, place.start) for _, feature, table, place in self._lookups]
        self._described = np.array(described_, np.int64).reshape(-1, 6)

    def fill(self, ids: Mapping[str, Any], inputs: Array) -> Sequence[str]:
        """Write the rows of features whose ids are plain and in range. Return the names of the lookups made."""
        given = [ids.get(name) for name in self._features]
        plain = [
            i
            for i, values in enumerate(given)
            if isinstance(values, np.ndarray) and values.dtype == np.int32 and values.ndim == 1
        ]
        if not plain:
            return ()
        matrix: npt.NDArray[np.int32] = np.array([given[i] for i in plain])  # (features, rows)
        # Read as unsigned, a negative id is a huge one.
        fit = np.all(matrix.view(np.uint32) < self._rows[plain], axis=1)
        lookups, made = self._described, self._names
        if len(plain) < len(given) or not fit.all():
            places = {feature: place for place, feature in enumerate(plain) if fit[place]}
            kept = [i for i, lookup in enumerate(self._lookups) if lookup.feature in places]
            lookups, made = lookups[kept], [made[i] for i in kept]
            lookups[:, ROW_OF_IDS] = [places[self._lookups[i].feature] for i in kept]
        if not fill_rows(lookups, matrix, inputs):
            for name, _, table, place in self._lookups:
                if name in made:
                    own = matrix[lookups[made.index(name), ROW_OF_IDS]]
                    inputs[: len(own), place] = table.take(own, axis=0)
        return made


class KnownIds:
    """Finds rows, and gives unknown ids what training gave them."""

    def __init__(self, ids: Array, rows: Array, unknown: int) -> None:
        """``unknown``: the row of all ids that are not in ``ids``; -1: they read zeros."""
        self._ids, self._unknown = ids, unknown
        self._table = HashTable(mix64(ids.view(np.uint64)))
        self._rows = np.append(rows, np.int32(unknown)).astype(np.int32)  # position -1 is the last

    def changed(self, came: tuple[Array, Array] | None, went: Array | None) -> KnownIds:
        """Return the ids after some came, with their rows, and some went."""
        ids, rows = self._ids, self._rows[:-1]
        out = np.concatenate([a for a in (None if came is None else came[0], went) if a is not None] or [ids[:0]])
        stay = ~np.isin(ids, out)
        ids, rows = ids[stay], rows[stay]
        if came is not None:
            ids, rows = np.concatenate([ids, came[0]]), np.concatenate([rows, came[1]])
        return KnownIds(ids, rows, self._unknown)

    def rows_of(self, feature: str, given: Any) -> Any:
        """Return a feature's values in a batch with rows instead of ids; -1 where an id is missing, or has no row."""
        return replaced(feature, without_presence(given), lambda ids: self._rows[self._table.find(mix64(ids))])


def known_ids(held: Opened, tables: Mapping[str, Array]) -> dict[str, KnownIds]:
    """Return the ids of the dynamic tables of an export, by table."""
    if IDS not in held.files:
        return {}
    from safetensors import SafetensorError
    from safetensors.numpy import load

    where, data = str(held.folder / IDS), held.read(IDS)
    try:
        arrays = load(data)
        names = [name.removesuffix("/ids") for name in arrays if name.endswith("/ids")]
        parts = {name: [arrays[f"{name}/{part}"] for part in ("ids", "rows", "unknown")] for name in names}
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"is not the file of an export: {error}; export again", where) from None
    made = {}
    for name, (ids, rows, unknown) in parts.items():
        limit = len(tables[name]) if name in tables else 0
        sound = (
            ids.dtype == np.int64
            and rows.dtype == unknown.dtype == np.int32
            and ids.shape == rows.shape == (len(rows),)
            and unknown.shape == (1,)
            and -1 <= unknown[0] < limit
            and (not len(rows) or (rows.min() >= 0 and rows.max() < limit))
            and len(np.unique(ids)) == len(ids)
        )
        if not sound:
            raise DataError(f"does not fit table {shown(name)}; export again", where)
        made[name] = KnownIds(ids, rows, int(unknown[0]))
    return made
