"""Sparse matrices as inputs: a row per example and a column per id; entries are weights.

The activations of a feature with the combiner "sum" are ``matrix @ table``. SciPy's matrices and arrays are read, and
those of ``jax.experimental.sparse``: BCOO, COO and CSR.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def is_matrix(given: Any) -> bool:
    """Return whether this is a sparse matrix; imports no library."""
    return hasattr(given, "tocoo") or type(given).__module__.startswith("jax.experimental.sparse")


def read_matrix(name: str, given: Any, columns: int | None) -> tuple[Ints, Ints, npt.NDArray[Any] | None]:
    """Return values, offsets and weights (None: all are 1).

    ``columns``: the number of columns that the matrix must have; None: any.
    """
    if len(given.shape) != 2:
        raise ValueError(f"feature '{name}': a sparse matrix has 2 dimensions, (batch, ids), got {given.shape}")
    if columns is not None and given.shape[1] != columns:
        raise ValueError(
            f"feature '{name}': a sparse matrix has a column for each of the {columns} rows of the table, got "
            f"{given.shape[1]} columns; for ids that are the entries of a matrix, use Ragged.from_coo"
        )
    rows, ids, entries = _entries(name, given)
    inside = (rows < given.shape[0]) & (ids < given.shape[1])  # BCOO pads with indices past the end
    if not inside.all():
        rows, ids, entries = rows[inside], ids[inside], entries[inside]
    order = np.argsort(rows, kind="stable")
    weights = None if np.all(entries == 1) else entries[order]
    return ids[order], offsets_of(rows, given.shape[0]), weights


def offsets_of(rows: npt.NDArray[Any], batch: int) -> Ints:
    """Return where each example begins, from the example of each entry."""
    offsets = np.zeros(batch + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=batch), out=offsets[1:])
    return offsets


def _entries(name: str, given: Any) -> tuple[Ints, Ints, npt.NDArray[Any]]:
    if hasattr(given, "tocoo"):
        given = given.tocoo()
    if hasattr(given, "row") and hasattr(given, "col"):
        rows, ids = given.row, given.col
    elif hasattr(given, "indptr") and given.indptr.ndim == 1:
        rows, ids = np.repeat(np.arange(given.shape[0]), np.diff(np.asarray(given.indptr))), given.indices
    else:
        indices, batch = np.asarray(given.indices), np.arange(given.shape[0])
        if given.data.ndim == 1 and indices.shape[-1] == 2:
            rows, ids = indices[:, 0], indices[:, 1]
        elif given.data.ndim == 2 and indices.shape[-1:] == (1,):  # n_batch=1: as many entries for each example
            rows, ids = np.repeat(batch, indices.shape[1]), indices.reshape(-1)
        else:
            raise ValueError(f"feature '{name}': a BCOO must have n_batch 0 or 1 and n_dense 0, got {given!r}")
    return np.asarray(rows, np.int64), np.asarray(ids, np.int64), np.asarray(given.data).reshape(-1)
