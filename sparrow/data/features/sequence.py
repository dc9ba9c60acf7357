"""`SequenceFeature`: ids in order, pooled or looked up one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from sparrow import fields
from sparrow.data.batch import Values
from sparrow.data.errors import Problems
from sparrow.data.features.base import POOLINGS, TableUse, register_feature
from sparrow.data.features.dynamic import without_missing_ids
from sparrow.data.features.mapped import MappedIds, without_missing
from sparrow.data.features.truncated import truncated
from sparrow.embedding import Ragged
from sparrow.kernels.feed import Step


@register_feature("sequence")
@dataclasses.dataclass(frozen=True)
class SequenceFeature(MappedIds):
    """Ids in order, such as the last items a user saw: pooled, or looked up one by one and kept in order.

    >>> import pyarrow as pa
    >>> seen = SequenceFeature("seen", num_buckets=10, embedding_dim=8, max_length=2)
    >>> seen.convert(pa.RecordBatch.from_pydict({"seen": [[1, 2, 3], [4]]}), Problems(2)).to_lists()
    [[2, 3], [4]]

    Attributes:
      name, embedding_dim, column, compute, num_buckets, hash_bucket_size, vocabulary, vocabulary_has_rows, dynamic,
        unknown, default, separator, as_integer, table: as in `IdFeature`.
      max_length: the most ids of a row that are kept.
      keep: the ids of a longer row that are kept: "last" or "first".
      pooling: "sum", "mean" or "sqrtn" of the kept ids; None: the model gets the embeddings in order, as a
        `sparrow.Sequence`. A missing id of a list then keeps its place, with zeros as its embedding.
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
        """Ids."""
        return "ids"

    @property
    def sequence_length(self) -> int | None:
        """The most elements of a sequence in order; None where they are pooled."""
        return self.max_length if self.pooling is None else None

    @property
    def table_use(self) -> TableUse:
        """The table, and whether its rows stay in order."""
        return dataclasses.replace(super().table_use, is_ordered=self.pooling is None)

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
        return dataclasses.replace(
            step, max_length=self.max_length, keep_last=self.keep == "last", keeps_missing=self.pooling is None
        )

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return `Ragged`; in an ordered sequence -1 stands for a missing id of a list."""
        if self.dynamic is not None:
            ids, missing, flat = self._read_raw(columns, problems)
            offsets = np.arange(len(ids) + 1) if flat.offsets is None else flat.offsets
            bags = without_missing_ids(ids, missing, offsets, None)
        else:
            rows, flat = self._read(columns, problems)
            if self.pooling is None and flat.offsets is not None:
                bags = Ragged(rows, flat.offsets)
            else:
                bags = without_missing(rows, np.arange(len(rows) + 1) if flat.offsets is None else flat.offsets, None)
        return truncated(bags.values, bags.offsets, self.max_length, self.keep)
