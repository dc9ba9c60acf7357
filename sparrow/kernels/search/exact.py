"""`best_rows`: the rows with the largest dot products, compiled, or in NumPy where there is no compiler."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.native.library import address, host_library

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

SCORES_AT_ONCE: Final = 2**24
"""Scores that NumPy holds at a time."""


class Excluded(NamedTuple):
    """Rows that a query must not find.

    Attributes:
      offsets: (queries + 1,) where the rows of each query begin.
      rows: row numbers, ascending for each query.
    """

    offsets: Numbers
    rows: Numbers


def best_rows(
    queries: Any,
    blocks: Iterable[Any],
    k: int,
    *,
    allowed: Any = None,
    excluded: Excluded | None = None,
    threads: int | None = None,
    compiled: bool | None = None,
) -> tuple[Floats, Numbers]:
    """Return the scores and the numbers of the ``k`` rows with the largest dot products, the best first.

    Equal scores come in the order of their rows. Where fewer than ``k`` rows may be found, the rest has the number -1
    and the score -inf. A score of NaN is never found.

    >>> scores, rows = best_rows([[1.0, 0.0]], [[[0.0, 1.0], [2.0, 0.0]], [[3.0, 3.0]]], k=2)
    >>> rows.tolist(), scores.tolist()
    ([[2, 1]], [[3.0, 2.0]])

    Args:
      queries: (queries, dim).
      blocks: blocks of rows, (rows, dim) each, in order.
      k: rows for each query.
      allowed: (all rows,) booleans, the rows that may be found; None: all.
      excluded: rows that single queries must not find.
      threads: None: one per core.
      compiled: None: where there is a compiler; False: by NumPy.
    """
    wanted = _floats(queries)
    scores = np.full((len(wanted), k), -np.inf, np.float32)
    numbers = np.full((len(wanted), k), -1, np.int64)
    loaded = None if compiled is False else host_library("search")
    passes = None if allowed is None else np.ascontiguousarray(allowed, np.bool_)
    count = threads or len(os.sched_getaffinity(0))
    left_out = (None, None) if excluded is None else [np.ascontiguousarray(part, np.int64) for part in excluded]
    start = 0
    for given in blocks:
        block = _floats(given)
        if block.shape[1:] != wanted.shape[1:]:
            raise ValueError(f"queries have {wanted.shape[1]} numbers and rows {block.shape[1]}; they must be equal")
        mask = None if passes is None else passes[start : start + len(block)]
        if loaded is None:
            _add(wanted, block, start, mask, excluded, scores, numbers)
        else:
            loaded.sparrow_search(
                address(wanted),
                ctypes.c_int64(len(wanted)),
                address(block),
                *map(ctypes.c_int64, (*block.shape, k, start)),
                *map(address, (mask, *left_out)),
                ctypes.c_int64(count),
                address(scores),
                address(numbers),
            )
        start += len(block)
    return scores, numbers


def _floats(vectors: Any) -> Floats:
    array = np.ascontiguousarray(vectors, np.float32)
    if array.ndim != 2:
        raise ValueError(f"vectors must have two axes, one row each, got the shape {array.shape}")
    return array


def _add(
    queries: Floats,
    block: Floats,
    start: int,
    allowed: npt.NDArray[np.bool_] | None,
    excluded: Excluded | None,
    scores: Floats,
    numbers: Numbers,
) -> None:
    """Improve scores and numbers by a block of rows, in NumPy: the compiled code is tested against it."""
    k = scores.shape[1]
    size = max(1, SCORES_AT_ONCE // max(1, len(block)))
    for first in range(0, len(queries), size):
        some = slice(first, first + size)
        new = queries[some] @ block.T
        new[np.isnan(new)] = -np.inf
        if allowed is not None:
            new[:, ~allowed] = -np.inf
        for query in range(len(new) if excluded is not None else 0):
            assert excluded is not None
            at = excluded.rows[excluded.offsets[first + query] : excluded.offsets[first + query + 1]] - start
            new[query, at[(at >= 0) & (at < len(block))]] = -np.inf
        both = np.concatenate([scores[some], new], axis=1)
        found = np.broadcast_to(np.arange(start, start + len(block)), new.shape)
        order = np.argsort(-both, axis=1, kind="stable")[:, :k]  # equal scores: the first row comes first
        scores[some] = np.take_along_axis(both, order, axis=1)
        chosen = np.take_along_axis(np.concatenate([numbers[some], found], axis=1), order, axis=1)
        numbers[some] = np.where(np.isneginf(scores[some]), -1, chosen)
