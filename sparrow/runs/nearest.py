"""The nearest rows of a table: exact, a block of rows at a time, or by a library of approximate search."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.errors import ConfigError

Floats = npt.NDArray[np.float32]
Measure = Literal["cosine", "dot"]
Index = Literal["exact", "auto", "hnswlib", "faiss"]

LIBRARIES: Final = ("hnswlib", "faiss")
SCORES_AT_ONCE: Final = 2**24
"""Scores that are held at a time."""


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


def nearest_rows(
    queries: Any, blocks: Iterable[Any], k: int, measure: Measure = "cosine", index: Index = "exact"
) -> Nearest:
    """Return the ``k`` rows nearest to each query.

    >>> found = nearest_rows([[1.0, 0.0]], [[[0.0, 1.0], [2.0, 0.0]], [[3.0, 3.0]]], k=2)
    >>> found.rows.tolist(), found.scores.round(3).tolist()
    ([[1, 2]], [[1.0, 0.7070000171661377]])

    Args:
      queries: (queries, dim).
      blocks: blocks of rows, (rows, dim) each, in order.
      k: rows for each query.
      measure: "cosine", or "dot" for the dot product.
      index: "exact"; "hnswlib" or "faiss", where that library is installed; "auto": the first of them that is, else
        exact. An index is built anew with each call.
    """
    fields.integer("neighbours: k", k)
    fields.choice("neighbours: measure", measure, ("cosine", "dot"))
    fields.choice("neighbours: index", index, ("exact", "auto", *LIBRARIES))
    wanted = _prepared(queries, measure)
    held = (_prepared(block, measure) for block in blocks)
    name = next(filter(_is_installed, LIBRARIES), "exact") if index == "auto" else index
    if name == "exact":
        return _exact(wanted, held, k)
    if not _is_installed(name):
        raise ConfigError(f"neighbours: index '{name}' needs that library; install it, or use index='exact'")
    everything = np.concatenate(list(held) or [np.zeros((0, wanted.shape[1]), np.float32)])
    return (_by_hnswlib if name == "hnswlib" else _by_faiss)(wanted, everything, min(k, len(everything)))


def _prepared(vectors: Any, measure: Measure) -> Floats:
    """Return rows whose dot products are the measure; a row of zeros stays."""
    array = np.asarray(vectors, np.float32)
    if measure == "dot":
        return array
    norms = np.linalg.norm(array, axis=-1, keepdims=True)
    return (array / np.where(norms > 0, norms, 1)).astype(np.float32)


def _exact(queries: Floats, blocks: Iterator[Floats], k: int) -> Nearest:
    rows = np.full((len(queries), k), -1, np.int64)
    scores = np.full((len(queries), k), -np.inf, np.float32)
    start = 0
    for block in blocks:
        size = max(1, SCORES_AT_ONCE // max(1, len(block)))
        for first in range(0, len(queries), size):
            some = slice(first, first + size)
            new = queries[some] @ block.T
            best = np.argpartition(-new, min(k, new.shape[1]) - 1, axis=1)[:, :k] if new.shape[1] > k else None
            at = np.broadcast_to(np.arange(new.shape[1]), new.shape) if best is None else best
            both = np.concatenate([scores[some], np.take_along_axis(new, at, axis=1)], axis=1)
            numbers = np.concatenate([rows[some], at + start], axis=1)
            # Equal scores: the first row comes first, so that the blocks do not show.
            order = np.lexsort((np.where(numbers < 0, np.iinfo(np.int64).max, numbers), -both), axis=1)[:, :k]
            scores[some] = np.take_along_axis(both, order, axis=1)
            rows[some] = np.take_along_axis(numbers, order, axis=1)
        start += len(block)
    return Nearest(rows[:, :start], scores[:, :start])


def _is_installed(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


def _by_hnswlib(queries: Floats, rows: Floats, k: int) -> Nearest:
    library: Any = importlib.import_module("hnswlib")
    index = library.Index(space="ip", dim=rows.shape[1])
    index.init_index(max_elements=len(rows), ef_construction=200, M=16, random_seed=0)
    index.add_items(rows, np.arange(len(rows)), num_threads=1)  # the order of insertion decides the graph
    index.set_ef(max(64, 2 * k))
    found, distances = index.knn_query(queries, k=k)
    return Nearest(found.astype(np.int64), (1 - distances).astype(np.float32))


def _by_faiss(queries: Floats, rows: Floats, k: int) -> Nearest:
    library: Any = importlib.import_module("faiss")
    index = library.IndexHNSWFlat(rows.shape[1], 32, library.METRIC_INNER_PRODUCT)
    index.hnsw.efSearch = max(64, 2 * k)
    index.add(np.ascontiguousarray(rows))
    scores, found = index.search(np.ascontiguousarray(queries), k)
    return Nearest(found.astype(np.int64), scores)
