"""The neighbours of ids in their table."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.data import DataError, shown
from sparrow.runs.vectors.nearest import Index, Measure, Nearest, nearest_rows
from sparrow.runs.vectors.table_view import TableView

Numbers = npt.NDArray[np.int64]

COMPARED: Final = 50_000
"""Words that an unknown one is compared with at most, for the nearest."""


def neighbours_of(
    table: TableView, ids: Sequence[Any], feature: str | None, k: int, measure: Measure, index: Index
) -> Nearest:
    """Return the rows of other ids that are nearest to those of ``ids``, as ``feature`` reads them."""
    own, known = table.rows(ids, feature), table.known_rows()
    if known is None:
        if (own < 0).any():
            raise DataError(f"{shown(ids[int(np.argmax(own < 0))])} has no row in the table '{table.name}'")
        found = nearest_rows(table.vectors(own), table.blocks(), k + 1, measure, index)
        return _without(found, own, k)
    is_unknown = ~np.isin(own, known)
    if is_unknown.any():
        raise DataError(_unknown(ids[int(np.argmax(is_unknown))], table, feature))
    found = nearest_rows(table.vectors(own), _chosen(table, known), k + 1, measure, index)
    others = _without(found._replace(rows=known[found.rows]), own, k)
    return others._replace(ids=[table.ids_of(rows) or [] for rows in others.rows])


def _chosen(table: TableView, rows: Numbers) -> Iterator[Any]:
    """Yield some rows of the table, a block at a time; ``rows`` ascend."""
    start = 0
    for block in table.blocks():
        first, last = np.searchsorted(rows, (start, start + len(block)))
        yield block[rows[first:last] - start]
        start += len(block)


def _without(found: Nearest, own: Numbers, k: int) -> Nearest:
    """Return ``k`` neighbours of each, without itself."""
    is_other = found.rows != own[:, None]
    order = np.argsort(~is_other, axis=1, kind="stable")[:, : min(k, max(found.rows.shape[1] - 1, 0))]
    return Nearest(np.take_along_axis(found.rows, order, 1), np.take_along_axis(found.scores, order, 1))


def _unknown(id: Any, table: TableView, feature: str | None) -> str:
    words = [str(known) for known in table.ids_of(np.asarray(table.known_rows())[:COMPARED]) or []]
    close = difflib.get_close_matches(str(id), words, n=1)
    hint = f"; did you mean {shown(close[0])}?" if close else ""
    return f"{shown(id)} is not in the vocabulary of '{feature or table.name}'{hint}"
