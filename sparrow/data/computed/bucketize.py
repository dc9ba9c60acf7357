"""`Bucketize`: the bucket that a number is in."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from sparrow import fields
from sparrow.data.computed.base import Column, Computed, check_inputs, column_of, register_computed
from sparrow.data.computed.numeric import read_numbers
from sparrow.data.errors import Problems


@register_computed("bucketize")
@dataclasses.dataclass(frozen=True)
class Bucketize(Computed):
    """The number of boundaries that are at most x, as the key of a `Lookup` or as one of the values of an `Expr`.

    >>> batch = pa.RecordBatch.from_pydict({"age": [17, None, 40]})
    >>> Bucketize("age", boundaries=(18.0, 30.0)).compute(batch, Problems(3)).to_pylist()
    [0, None, 2]

    Attributes:
      column: numbers, or lists of them.
      boundaries: increasing numbers.
    """

    column: Column
    _: dataclasses.KW_ONLY
    boundaries: tuple[float, ...]

    def __post_init__(self) -> None:
        check_inputs(self, "column")
        fields.increasing("Bucketize.boundaries", self.boundaries)

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.column,)

    def holds_input(self, column: str) -> str:
        return "numbers; may be missing"

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return int64, or lists of them; missing where a number is."""
        name = self.columns[0] if self.columns else "a constant"
        vector, missing = read_numbers(column_of(self.column, columns, problems), name, None, problems)
        buckets = np.searchsorted(np.asarray(self.boundaries), vector.values, side="right").astype(np.int64)
        if vector.offsets is None:
            return pa.array(buckets, mask=missing)
        return pa.LargeListArray.from_arrays(vector.offsets, buckets, mask=pa.array(missing))
