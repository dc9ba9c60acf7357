"""Inputs of a feature: from lists, arrays, Arrow, sparse matrices or `Ragged` to checked bags of row numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.embedding.batches.ragged import LISTS, Floats, Ints, Ragged, bags_of, concatenated, integers, offsets_of
from sparrow.embedding.specs import FeatureSpec, TableSpec
from sparrow.kernels.ids import hash_integers

_OF_TENSORS: Final = {
    "dense_shape": "sp.Ragged.from_coo(tensor.indices, tensor.values, tensor.dense_shape) for entries that are ids",
    "row_splits": "sp.Ragged(tensor.values, tensor.row_splits)",
}
"""Attributes of TensorFlow's sparse and ragged tensors, and how to write them here."""


def read_input(
    name: str, given: Any, columns: int | None = None
) -> tuple[Ints, Ints | None, Floats | None, npt.NDArray[np.bool_] | None, bool]:
    """Values, offsets (None: one id per bag), weights, mask of missing ids, and whether the length is steady.

    ``columns``: the number of columns of a sparse matrix; None: any.
    """
    if isinstance(given, Ragged):
        values = integers(f"feature '{name}'", given.values)
        offsets = _check_offsets(name, np.asarray(given.offsets), len(values))
        return values, offsets, _check_weights(name, given.weights, len(values)), None, False
    if type(given).__module__.startswith("pyarrow") or hasattr(given, "__arrow_c_stream__"):
        return (*read_arrow(name, given), False)
    if _is_matrix(given):
        ids, starts, weights = _read_matrix(name, given, columns)
        return ids, starts, _check_weights(name, weights, len(ids)), None, False
    for attribute, write in _OF_TENSORS.items():
        if hasattr(given, attribute):
            raise TypeError(f"feature '{name}': a {type(given).__name__} is not read as it is; write {write}")
    if isinstance(given, tuple) and _is_values_and_offsets(given):
        raise TypeError(
            f"feature '{name}': a tuple of values and offsets is read as two bags; give sp.Ragged(values, offsets), or "
            "sp.Ragged.from_offsets(values, offsets) where the last offset is left out, as torch does; give a list "
            "where two bags are meant"
        )
    if not isinstance(given, list | tuple | np.ma.MaskedArray):
        given = np.asarray(given)
        given = given.tolist() if given.dtype == object else given
    if isinstance(given, list | tuple) and any(bag is None or isinstance(bag, LISTS) for bag in given):
        bags = bags_of(f"feature '{name}'", given)
        return concatenated(bags), np.cumsum([0, *map(len, bags)]), None, None, False
    missing = np.ma.getmaskarray(given).reshape(-1) if isinstance(given, np.ma.MaskedArray) else None
    array = np.asarray(given)
    if array.ndim == 2:
        offsets = np.arange(array.shape[0] + 1) * array.shape[1]
        return integers(f"feature '{name}'", array.reshape(-1)), offsets, None, missing, True
    return integers(f"feature '{name}'", array), None, None, missing, True


def _is_values_and_offsets(given: tuple[Any, ...]) -> bool:
    """Whether the second member has the form of offsets into the first; a third one may hold weights.

    Arrays may lack the last offset, as torch's do; lists of that form are rather bags.
    """
    if len(given) not in (2, 3) or any(not hasattr(member, "__len__") for member in given):
        return False
    values, offsets = given[0], np.asarray(given[1])
    may_be_open = not any(isinstance(member, list | tuple) for member in given)
    if offsets.ndim != 1 or len(offsets) < 2 or offsets.dtype.kind not in "iu":
        return False
    fits = offsets[-1] <= len(values) if may_be_open else offsets[-1] == len(values)
    return bool(offsets[0] == 0 and fits and (offsets[1:] >= offsets[:-1]).all())


def _check_offsets(name: str, offsets: npt.NDArray[Any], count: int) -> Ints:
    if offsets.ndim != 1 or len(offsets) < 1 or not np.issubdtype(offsets.dtype, np.integer):
        raise ValueError(f"feature '{name}': offsets must be a 1-D array of integers, one more than bags")
    offsets = offsets.astype(np.int64, copy=False)
    if offsets[0] != 0 or offsets[-1] != count:
        raise ValueError(
            f"feature '{name}': offsets must run from 0 to the number of ids ({count}), "
            f"got {offsets[0]} to {offsets[-1]}"
        )
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if falls.size:
        at = int(falls[0])
        raise ValueError(
            f"feature '{name}': offsets must never decrease, but row {at} runs from {offsets[at]} to {offsets[at + 1]}"
        )
    return offsets


def _check_weights(name: str, weights: Any, count: int) -> Floats | None:
    if weights is None:
        return None
    array = np.asarray(weights)
    if not (np.issubdtype(array.dtype, np.floating) or np.issubdtype(array.dtype, np.integer)):
        raise TypeError(f"feature '{name}': weights must be numbers, got {array.dtype}")
    if array.shape != (count,):
        raise ValueError(f"feature '{name}': {count} ids need as many weights, got an array of shape {array.shape}")
    array = array.astype(np.float32)
    if not np.isfinite(array).all():
        at = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(f"feature '{name}': weights must be finite, but weight {at} is {array[at]}")
    return array


def refuse_outside(feature: FeatureSpec, values: Ints, offsets: Ints | None) -> None:
    """Raise the error of the first id that is outside the table, unless such ids are ignored or hashed."""
    table = feature.table_spec
    outside = np.flatnonzero((values < 0) | (values >= table.vocabulary_size))
    if feature.invalid_ids == "error" and len(outside):
        at = int(outside[0])
        row = at if offsets is None else int(np.searchsorted(offsets, at, side="right")) - 1
        raise ValueError(
            f"feature '{feature.name}': id {values[at]} in row {row} is outside table '{table.name}', whose ids are "
            f"0 to {table.vocabulary_size - 1}; correct the data, or set FeatureSpec.invalid_ids to 'ignore' or 'hash'"
        )


def hash_ids(values: Ints, table: TableSpec) -> npt.NDArray[np.int64]:
    """Send any 64-bit id to a row of ``table``, the same one always and everywhere (splitmix64, then modulo)."""
    return (hash_integers(values) % np.uint64(table.vocabulary_size)).astype(np.int64)


def read_arrow(
    name: str, given: Any
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, None, npt.NDArray[np.bool_] | None]:
    """Values, offsets (None: one id per bag), no weights, and the mask of missing ids.

    Arrow's memory is used without a copy where possible. A missing list is an empty bag, a missing id in a plain column
    is a bag without an id.
    """
    import pyarrow as pa

    if not type(given).__module__.startswith("pyarrow"):  # such as a column of Polars
        given = pa.chunked_array(given)
    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if not isinstance(given, pa.Array):
        raise TypeError(
            f"feature '{name}': expected an Arrow array of ids or of lists of ids, got {type(given).__name__}"
        )
    kind = given.type
    if pa.types.is_integer(kind):
        missing = None
        if given.null_count:
            missing = given.is_null().to_numpy(zero_copy_only=False)
            given = given.fill_null(0)
        return given.to_numpy(), None, None, missing
    if pa.types.is_fixed_size_list(kind):
        given = given.cast(pa.list_(kind.value_type))
        kind = given.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise TypeError(f"feature '{name}': expected an Arrow column of integers or of lists of them, got {kind}")
    if not pa.types.is_integer(kind.value_type):
        raise TypeError(f"feature '{name}': ids must be integers, got lists of {kind.value_type}")
    if given.null_count:  # a missing list may still span values in Arrow's buffers: rebuild without them
        given = pa.concat_arrays([given.fill_null(pa.scalar([], kind))])
    offsets = given.offsets.to_numpy().astype(np.int64)
    values = given.values.slice(offsets[0], offsets[-1] - offsets[0])
    if values.null_count:
        raise ValueError(f"feature '{name}': a list of ids contains missing values; drop them or fill them first")
    return values.to_numpy(), offsets - offsets[0], None, None


def _is_matrix(given: Any) -> bool:
    # imports no library
    return hasattr(given, "tocoo") or type(given).__module__.startswith("jax.experimental.sparse")


def _read_matrix(name: str, given: Any, columns: int | None) -> tuple[Ints, Ints, npt.NDArray[Any] | None]:
    """Return values, offsets and weights (None: all are 1): a matrix has a row per example and a column per id.

    Its entries are weights: the activations of a feature with the combiner "sum" are ``matrix @ table``. SciPy's
    matrices and arrays are read, and those of ``jax.experimental.sparse``: BCOO, COO and CSR. ``columns``: the number
    of columns that the matrix must have; None: any.
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
