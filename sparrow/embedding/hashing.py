"""A fixed hash of ids: the same 64 bits for the same number on every platform, in every version.

Trained tables depend on it: a change would send every hashed id to another row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.kernels.ids import U64
from sparrow.kernels.ids import mix64_of_numpy as mix64


def hash_integers(values: npt.NDArray[np.integer[Any]]) -> U64:
    """`mix64` of integers of any type; a negative number counts as its two's complement in 64 bits."""
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False)
    return mix64(wide.view(np.uint64))
