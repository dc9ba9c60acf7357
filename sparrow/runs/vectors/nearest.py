"""The nearest rows of a table: exact, a block of rows at a time, or by a library of approximate search."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.errors import ConfigError
from sparrow.kernels.search import best_rows

Floats = npt.NDArray[np.float32]
Measure = Literal["cosine", "dot"]
Index = Literal["exact", "auto", "hnswlib", "faiss"]

LIBRARIES: Final = ("hnswlib", "faiss")


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
        scores, rows = best_rows(wanted, held, k)
        found = int((rows >= 0).sum(axis=1).max(initial=0))
        return Nearest(rows[:, :found], scores[:, :found])
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
