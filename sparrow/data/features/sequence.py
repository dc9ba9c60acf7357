"""`SequenceFeature`: ids in order, pooled or looked up one by one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc

from sparrow.data.batch import Values
from sparrow.data.errors import Problems, shown
from sparrow.data.features.base import End, Pooling, TableUse, register_feature, truncated
from sparrow.data.features.mapped import MappedIds, kept_ids
from sparrow.data.values import Flat, element_type, is_text, with_one_entry
from sparrow.fields import Count
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
      value_separator: a separator between several ids of one element of a string, which are an error: an element is
        one id. None: an element may hold any string.
      max_length: the most ids of a row that are kept.
      keep: the ids of a longer row that are kept: "last" or "first".
      pooling: "sum", "mean" or "sqrtn" of the kept ids; None: the model gets the embeddings in order, as a
        `sparrow.Sequence`. A missing id of a list then keeps its place, with zeros as its embedding; with ``dynamic``
        it needs a default.
    """

    _: dataclasses.KW_ONLY
    max_length: Count
    keep: End = "last"
    pooling: Pooling | None = None
    value_separator: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_fields()

    @property
    def sequence_length(self) -> int | None:
        return self.max_length if self.pooling is None else None

    @property
    def table_use(self) -> TableUse:
        return dataclasses.replace(super().table_use, is_ordered=self.pooling is None)

    @property
    def may_hold_lists(self) -> bool:
        return True

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        step = super().step(kinds)
        if step is None or (self.value_separator is not None and is_text(element_type(kinds[self.id_column]))):
            return None
        return dataclasses.replace(
            step, max_length=self.max_length, keep_last=self.keep == "last", keeps_missing=self.pooling is None
        )

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return `Ragged`; in an ordered sequence -1 stands for a missing id of a list."""
        self._refuse_several(columns, problems)
        ids, there, flat = self._read(columns, problems)
        if self.pooling is None and flat.offsets is not None:
            if self.dynamic is not None:  # every number may be a raw id, so that none can stand for a missing one
                why = f"an id of the sequence is missing; give the feature '{self.name}' a default, or a pooling"
                problems.add(self.id_column, flat.row_of(np.flatnonzero(~there)), lambda _: why)
            else:
                there[:] = True
        bags = kept_ids(ids, there, flat)
        return truncated(bags.values, bags.offsets, self.max_length, self.keep)

    def _entries(self, columns: Any, problems: Problems) -> Flat:
        flat = super()._entries(columns, problems)
        return flat if self.default is None else with_one_entry(flat)[0]

    def _refuse_several(self, columns: Any, problems: Problems) -> None:
        """Add the rows with an element of several ids to the problems."""
        if self.value_separator is None:
            return
        flat = self._entries(columns, problems)
        if not is_text(flat.entries.type):
            return
        several = pc.fill_null(pc.match_substring(flat.entries, self.value_separator), False)
        at = np.flatnonzero(several.to_numpy(zero_copy_only=False))
        takes, entries = f"feature '{self.name}' takes one id per element, got", flat.entries
        problems.add(
            self.id_column,
            flat.row_of(at),
            lambda i: f"{takes} {shown(entries[int(at[i])].as_py())}; keep one of them",
        )
