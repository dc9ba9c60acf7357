"""`KnownIds`: the rows of raw ids in a table that was trained with a dynamic vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparrow.data import DataError, HashTable, shown, without_presence
from sparrow.embedding import mix64, replaced
from sparrow.serving.description import IDS
from sparrow.serving.opened import Opened
from sparrow.serving.tensors import Array


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
