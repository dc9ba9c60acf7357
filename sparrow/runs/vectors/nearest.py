"""The nearest rows of a table, a block of rows at a time, and the neighbors of ids among them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.data import DataError, shown
from sparrow.kernels.search import best_rows
from sparrow.runs.vectors.table_view import TableView

Floats = npt.NDArray[np.float32]
Measure = Literal["cosine", "dot"]
Numbers = npt.NDArray[np.int64]

COMPARED: Final = 50_000
"""Words that an unknown one is compared with at most, for the nearest."""


class Nearest(NamedTuple):
    """Rows by score, the best first.

    There are fewer than k of them where there are fewer rows.

    Attributes:
      rows: (queries, k) row numbers.
      scores: (queries, k) cosines or dot products.
      ids: the id of each of ``rows``, as the data has it; None where ids are hashed, and for rows that were given.
    """

    rows: npt.NDArray[np.int64]
    scores: Floats
    ids: list[list[Any]] | None = None


def nearest_rows(queries: Any, blocks: Iterable[Any], k: int, measure: Measure = "cosine") -> Nearest:
    """Return the ``k`` rows nearest to each query.

    >>> found = nearest_rows([[1.0, 0.0]], [[[0.0, 1.0], [2.0, 0.0]], [[3.0, 3.0]]], k=2)
    >>> found.rows.tolist(), found.scores.round(3).tolist()
    ([[1, 2]], [[1.0, 0.7070000171661377]])

    Args:
      queries: (queries, dim).
      blocks: blocks of rows, (rows, dim) each, in order.
      k: rows for each query.
      measure: "cosine", or "dot" for the dot product.
    """
    fields.integer("neighbors: k", k)
    fields.choice("neighbors: measure", measure, ("cosine", "dot"))
    scores, rows = best_rows(_prepared(queries, measure), (_prepared(block, measure) for block in blocks), k)
    found = int((rows >= 0).sum(axis=1).max(initial=0))
    return Nearest(rows[:, :found], scores[:, :found])


def _prepared(vectors: Any, measure: Measure) -> Floats:
    """Return rows whose dot products are the measure; a row of zeros stays."""
    array = np.asarray(vectors, np.float32)
    if measure == "dot":
        return array
    norms = np.linalg.norm(array, axis=-1, keepdims=True)
    return (array / np.where(norms > 0, norms, 1)).astype(np.float32)


def neighbors_of(table: TableView, ids: Sequence[Any], feature: str | None, k: int, measure: Measure) -> Nearest:
    """Return the rows of other ids that are nearest to those of ``ids``, as ``feature`` reads them."""
    own, known = table.rows(ids, feature), table.known_rows()
    if known is None:
        if (own < 0).any():
            raise DataError(f"{shown(ids[int(np.argmax(own < 0))])} has no row in the table '{table.name}'")
        found = nearest_rows(table.vectors(own), table.blocks(), k + 1, measure)
        return _without(found, own, k)
    is_unknown = ~np.isin(own, known)
    if is_unknown.any():
        raise DataError(_unknown(ids[int(np.argmax(is_unknown))], table, feature))
    found = nearest_rows(table.vectors(own), _chosen(table, known), k + 1, measure)
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
    """Return ``k`` neighbors of each, without itself."""
    is_other = found.rows != own[:, None]
    order = np.argsort(~is_other, axis=1, kind="stable")[:, : min(k, max(found.rows.shape[1] - 1, 0))]
    return Nearest(np.take_along_axis(found.rows, order, 1), np.take_along_axis(found.scores, order, 1))


def _unknown(id: Any, table: TableView, feature: str | None) -> str:
    words = [str(known) for known in table.ids_of(np.asarray(table.known_rows())[:COMPARED]) or []]
    close = difflib.get_close_matches(str(id), words, n=1)
    hint = f"; did you mean {shown(close[0])}?" if close else ""
    return f"{shown(id)} is not in the vocabulary of '{feature or table.name}'{hint}"
