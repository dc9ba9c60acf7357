"""Rows and ids of a checkpoint, as an embedder has them whose tables have other rows or devices."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np

from sparrow.checkpoint.blocks import Key
from sparrow.checkpoint.errors import CheckpointError
from sparrow.checkpoint.saved import Saved
from sparrow.checkpoint.tables import check_shape, placed, rows_of
from sparrow.embedding import Embedder, EmbeddingState, SavedIds


def ids_arrays(embedder: Embedder, state: EmbeddingState) -> dict[str, Any]:
    """Return the ids of all dynamic tables as arrays of a checkpoint, by name."""
    saved = embedder.saved_ids(state)
    return {f"ids/{table}/{key}": array for table, ids in saved.items() for key, array in ids.arrays().items()}


def all_ids(embedder: Embedder, arrays: Mapping[str, Any]) -> dict[str, SavedIds]:
    """Return the ids of all dynamic tables in a checkpoint."""
    try:
        return {name: ids_of(arrays, name) for name, table in embedder.tables.items() if table.dynamic is not None}
    except ValueError as error:
        raise CheckpointError(str(error)) from None


def ids_of(arrays: Mapping[str, Any], table: str) -> SavedIds:
    """Return the ids of a table in a checkpoint."""
    prefix = f"ids/{table}/"
    held = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    if "spare" not in held and any(key.endswith(f"/{table}/numbers") for key in arrays):
        raise ValueError(
            f"the ids of table '{table}' were saved in the format of version 0.1, which is not read; go on with that "
            "version, or begin anew"
        )
    return SavedIds.of(held, table)


class MovedRows:
    """The rows of a table or slot in a checkpoint, as a run with other rows has them.

    All of them in blocks, by iteration; or a process's part of them, as `sparrow.checkpoint.SavedRows` gives it.
    """

    def __init__(self, saved: Any, rows: int, source: Any = None, fresh: Any = None) -> None:
        """Take the saved rows up to ``rows``.

        ``source``: the old row of each row, for rows in another order; ``fresh``: the rows here, for those without an
        old one; None: zeros.
        """
        self._saved, self._rows, self._source, self._fresh = saved, rows, source, fresh

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        if self._source is not None:
            yield 0, self._in_order
            return
        for first, block in self._saved:
            if first < self._rows:
                yield first, block[: self._rows - first]

    def between(self, first: int, last: int) -> Any:
        return self._saved.between(first, last) if self._source is None else self._in_order[first:last]

    def check(self) -> None:
        """Compare checksums; rows in another order were read completely, and compared then."""
        if self._source is None:
            self._saved.check()

    @functools.cached_property
    def _in_order(self) -> Any:
        held = np.concatenate([block for _, block in self._saved])
        made = np.zeros((self._rows, *held.shape[1:]), held.dtype) if self._fresh is None else np.array(self._fresh)
        made[self._source >= 0] = held[self._source[self._source >= 0]]
        return made


def check_tables(shapes: Mapping[Key, tuple[int, ...]], saved: Saved, growing: Container[str] = ()) -> None:
    """Refuse tables and slots that the checkpoint lacks or has in another shape.

    Tables of ``growing`` may have another number of rows.
    """
    for key, shape in shapes.items():
        if key not in saved.tables:
            slots = [str(other.slot) for other in saved.tables if other.table == key.table and other.slot]
            has = "" if Key(key.table) not in saved.tables else f", it has {', '.join(slots) or 'none'}"
            raise CheckpointError(f"the checkpoint has no {key}{has}")
        held = saved.tables[key].shape
        if key.table in growing:
            shape = (held[0], *shape[1:])
        check_shape(key, held, shape)


def with_rows(embedder: Embedder, fresh: EmbeddingState, saved: Saved, ids: Mapping[str, SavedIds]) -> EmbeddingState:
    """Return a fresh state, which is donated, with the rows of a checkpoint and ``ids`` of `all_ids`."""
    try:
        state, sources = embedder.with_ids(fresh, ids)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
    rows = {key: held.num_rows for key, held in rows_of(embedder, state).items()}

    def read(key: Key) -> MovedRows:
        return MovedRows(saved.rows(key), rows[key], sources.get(key.table))

    return placed(embedder, state, list(rows), read)
