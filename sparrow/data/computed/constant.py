"""`Constant`: the same value in every row."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa

from sparrow.data.computed.base import Column, Computed, register_computed
from sparrow.data.errors import Problems


@register_computed("constant")
@dataclasses.dataclass(frozen=True)
class Constant(Computed):
    """The same number or string in every row.

    >>> Constant(7).compute(pa.RecordBatch.from_pydict({"a": [1, 2]}), Problems(2)).to_pylist()
    [7, 7]

    Attributes:
      value: the number or string.
    """

    value: int | float | str

    @property
    def inputs(self) -> tuple[Column, ...]:
        """No column."""
        return ()

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return the value for each row."""
        return pa.repeat(self.value, columns.num_rows)
