"""`SequenceFeature`: ids in order, pooled or padded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from sparrow import fields
from sparrow.data.batch import Values
from sparrow.data.errors import Problems
from sparrow.data.features.base import POOLINGS, register_feature
from sparrow.data.features.dynamic import without_missing_ids
from sparrow.data.features.mapped import MappedIds, without_missing
from sparrow.embedding import Ragged
from sparrow.kernels.feed import Step


@register_feature("sequence")
@dataclasses.dataclass(frozen=True)
class SequenceFeature(MappedIds):
    """Ids in order, such as the last items a user saw: pooled, or kept in order and padded.

    >>> import pyarrow as pa
    >>> seen = SequenceFeature("seen", num_buckets=10, embedding_dim=8, max_length=2)
    >>> seen.convert(pa.RecordBatch.from_pydict({"seen": [[1, 2, 3], [4]]}), Problems(2)).tolist()
    [[2, 3], [4, -1]]

    Attributes:
      name, embedding_dim, column, num_buckets, hash_bucket_size, vocabulary, dynamic, unknown, default, separator,
        as_integer, table: as in `IdFeature`.
      max_length: the most ids of a row that are kept.
      keep: the ids of a longer row that are kept: "last" or "first".
      pooling: "sum", "mean" or "sqrtn" of the kept ids; None: the sequence goes to the model in order.
    """

    _: dataclasses.KW_ONLY
    max_length: int
    keep: Literal["last", "first"] = "last"
    pooling: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"feature '{self.name}'"
        fields.integer(f"{where}: max_length", self.max_length)
        fields.choice(f"{where}: keep", self.keep, ("last", "first"))
        if self.pooling is not None:
            fields.choice(f"{where}: pooling", self.pooling, POOLINGS)
        elif self.dynamic is not None:
            raise ValueError(f"{where}: a dynamic sequence needs a pooling")

    @property
    def part(self) -> str:
        """Ids if they are pooled, else sequences."""
        return "sequences" if self.pooling is None else "ids"

    @property
    def combiner(self) -> str | None:
        """The pooling; a sequence that is not pooled looks its ids up one by one."""
        return self.pooling

    @property
    def may_hold_lists(self) -> bool:
        """Return True: a sequence is a list."""
        return True

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        """Return the compiled conversion, with the length."""
        step = super().step(kinds)
        if step is None:
            return None
        return dataclasses.replace(step, max_length=self.max_length, keep_last=self.keep == "last")

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return `Ragged` if pooled, else (batch, max_length) int32 with -1 after the last id."""
        if self.dynamic is not None:
            ids, missing, flat = self._read_raw(columns, problems)
            offsets = np.arange(len(ids) + 1) if flat.offsets is None else flat.offsets
            bags = without_missing_ids(ids, missing, offsets, None)
        else:
            rows, flat = self._read(columns, problems)
            bags = without_missing(rows, np.arange(len(rows) + 1) if flat.offsets is None else flat.offsets, None)
        lengths = np.diff(bags.offsets)
        kept = np.minimum(lengths, self.max_length)
        starts = bags.offsets[:-1] if self.keep == "first" else bags.offsets[1:] - kept
        offsets = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(kept, out=offsets[1:])
        place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], kept)  # the place of an id in its row
        ids = bags.values[np.repeat(starts, kept) + place]
        if self.pooling is not None:
            return Ragged(ids, offsets)
        padded = np.full((len(kept), self.max_length), -1, np.int32)
        padded[np.repeat(np.arange(len(kept)), kept), place] = ids
        return padded
