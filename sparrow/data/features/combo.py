"""`ComboFeature`: the cross of several columns, hashed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparrow import fields
from sparrow.data.batch import Values
from sparrow.data.errors import Problems
from sparrow.data.features.base import SparseFeature, register_feature
from sparrow.data.hashing import hashed, mix64, modulo
from sparrow.data.values import holds_values, is_compiled, is_list
from sparrow.fields import Count
from sparrow.kernels.feed import Step, steps


@register_feature("combo")
@dataclasses.dataclass(frozen=True)
class ComboFeature(SparseFeature):
    """One id per row for the combination of several columns' values, such as country and device.

    With ``k_1 .. k_n`` the columns' 64-bit keys (0 where missing)::

        h = mix64(n);  h = mix64(h ^ k_i) for i = 1 .. n;  id = h mod hash_bucket_size

    >>> import pyarrow as pa
    >>> combo = ComboFeature("place", cross=("city", "day"), hash_bucket_size=1000, embedding_dim=4)
    >>> batch = pa.RecordBatch.from_pydict({"city": ["Rome", "Rome", "Oslo"], "day": [1, 1, 1]})
    >>> a, b, c = combo.convert(batch, Problems(3))
    >>> bool(a == b), bool(a == c)
    (True, False)

    Attributes:
      name: the name of the feature.
      cross: the columns, two or more; their order matters.
      hash_bucket_size: rows of its table.
      embedding_dim: the dim of its table.
      table: the name of the table; None: the feature's own.
    """

    is_general = True
    name: str
    _: dataclasses.KW_ONLY
    cross: tuple[str, ...]
    hash_bucket_size: Count
    embedding_dim: Count
    table: str | None = None

    def __post_init__(self) -> None:
        where = self.check_fields("table")
        if isinstance(self.cross, str) or len(self.cross) < 2:
            raise ValueError(f"{where}: cross must name two columns or more, got {self.cross!r}")
        object.__setattr__(self, "cross", tuple(self.cross))
        for column in self.cross:
            fields.string(f"{where}: cross", column)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.cross

    @property
    def typed_columns(self) -> tuple[str, ...]:
        return self.cross

    @property
    def num_rows(self) -> int:
        return self.hash_bucket_size

    def holds(self, column: str) -> str:
        return "integers or strings; may be missing"

    def is_single(self, column: str) -> bool:
        return True

    def refuse(self, column: str, kind: Any) -> str | None:
        if not is_list(kind) and holds_values(kind):
            return None
        return f"feature '{self.name}' crosses single values (integers or strings), the column holds {kind}"

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        if not all(is_compiled(kinds[column]) for column in self.columns):
            return None
        return Step(steps.CROSS, self.columns, size=self.hash_bucket_size)

    def convert(self, columns: Any, problems: Problems) -> Values:
        """(batch,) int32."""
        h = mix64(np.full(columns.num_rows, len(self.cross), np.uint64))
        for name in self.cross:
            parsed = hashed(columns.column(name))
            parsed.report(name, problems)
            keys = parsed.values if parsed.missing is None else np.where(parsed.missing, np.uint64(0), parsed.values)
            h = mix64(h ^ keys)
        return modulo(h, self.hash_bucket_size)
