"""`DynamicRows`: a vocabulary that grows as ids come, as a field of a feature; and raw ids in a batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.hashing import hashed, through_dictionary
from sparrow.data.values import Parsed, integers, is_text
from sparrow.embedding import Dynamic, Ragged


@dataclasses.dataclass(frozen=True, kw_only=True)
class DynamicRows(Dynamic):
    """A `sparrow.Dynamic` vocabulary with its number of rows.

    Attributes:
      rows: the number of rows of the table; row 0 is the row of unknown ids where they share one.
      admit, evict, expire_steps, unknown, waiting: as in `sparrow.Dynamic`.
    """

    rows: int

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.integer("dynamic: rows", self.rows, at_least=1 + self.reserved)

    @property
    def rules(self) -> Dynamic:
        return Dynamic(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Dynamic)})


def raw_ids(entries: Any, as_integer: bool) -> Parsed:
    """64-bit ids (int64): integers as they stand, strings by their hash.

    >>> raw_ids(pa.array([3, None, 2**64 - 1], pa.uint64()), False).values.tolist()
    [3, 0, -1]
    """
    if pa.types.is_dictionary(entries.type):
        return through_dictionary(entries, lambda words: raw_ids(words, as_integer))
    parsed = hashed(entries) if is_text(entries.type) and not as_integer else integers(entries)
    values = parsed.values.astype(np.uint64 if parsed.values.dtype.kind == "u" else np.int64, copy=False)
    return dataclasses.replace(parsed, values=values.view(np.int64))


def with_presence(ids: npt.NDArray[np.int64], missing: npt.NDArray[np.bool_]) -> npt.NDArray[np.int32]:
    """(rows, 3): the lower and the upper half of each id, and 1 where there is one; zeros where one is missing."""
    made = np.zeros((len(ids), 3), np.int32)
    made[:, :2] = np.where(missing, np.int64(0), ids)[:, None].view(np.int32)
    made[:, 2] = ~missing
    return made


def without_presence(values: Any) -> Any:
    """Return values from `with_presence` as a masked array of 64-bit ids; other values of a batch are left unchanged.

    >>> without_presence(with_presence(np.array([2**40, 7]), np.array([False, True]))).tolist()
    [1099511627776, None]
    """
    if isinstance(values, Ragged) or values.ndim != 2:
        return values
    values = np.ma.getdata(values)  # a batch for several devices may be filled up with masked ones
    return np.ma.MaskedArray(np.ascontiguousarray(values[:, :2]).view(np.int64)[:, 0], values[:, 2] == 0)
