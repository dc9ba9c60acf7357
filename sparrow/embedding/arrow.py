"""Arrow arrays as inputs, without copies where Arrow allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def read_arrow(
    name: str, given: Any
) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, None, npt.NDArray[np.bool_] | None]:
    """Values, offsets (None: one id per bag), no weights, and the mask of missing ids.

    A missing list is an empty bag, a missing id in a plain column is a bag without an id.
    """
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
