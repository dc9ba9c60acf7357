"""`best_rows`: the rows with the largest dot products, compiled, or by XLA where there is no compiler."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from sparrow.kernels.native.host import host_library
from sparrow.kernels.search.on_device import Excluded, Floats, Numbers, RowsOnDevice


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
      compiled: None: where there is a compiler; False: by XLA.
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
            shifted = None if excluded is None else excluded._replace(rows=excluded.rows - start)
            new, found = RowsOnDevice(block).best(wanted, k, mask, shifted)
            both = np.concatenate([scores, new], axis=1)
            order = np.argsort(-both, axis=1, kind="stable")[:, :k]  # equal scores: the first row comes first
            scores = np.take_along_axis(both, order, axis=1)
            found = np.where(found < 0, -1, found + start)
            numbers = np.take_along_axis(np.concatenate([numbers, found], axis=1), order, axis=1)
        else:
            sizes = *block.shape, k, start
            loaded.sparrow_search(wanted, len(wanted), block, *sizes, mask, *left_out, count, scores, numbers)
        start += len(block)
    return scores, numbers


def _floats(vectors: Any) -> Floats:
    array = np.ascontiguousarray(vectors, np.float32)
    if array.ndim != 2:
        raise ValueError(f"vectors must have two axes, one row each, got the shape {array.shape}")
    return array
