"""`RawFeature`: numbers, unchanged, transformed, or cut into buckets that have embeddings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.data.batch import Values
from sparrow.data.computed import Computed
from sparrow.data.errors import DataError, Problems
from sparrow.data.expressions import Expression, Vector
from sparrow.data.features.base import ColumnFeature, Pooling, TableUse, register_feature
from sparrow.data.features.embeddings import AutoDis, NumberEmbedding
from sparrow.data.values import flatten, is_compiled, numbers, plain
from sparrow.embedding import Ragged
from sparrow.fields import Count, Finite, NotNegative, Positive
from sparrow.kernels.feed import Step, steps


@dataclasses.dataclass(frozen=True)
class NumberFields(ColumnFeature):
    """The fields of `RawFeature` and `RawSequenceFeature`."""

    needs = "numbers"
    name: str
    _: dataclasses.KW_ONLY
    column: str | None = None
    compute: Computed | None = None
    dim: Count = 1
    separator: str | None = None
    log: bool = False
    log10_above: NotNegative | None = None
    log10_default: Finite = -10.0
    expression: str | None = None
    mean: Finite = 0.0
    std: Positive = 1.0
    missing: Finite | None = 0.0
    boundaries: tuple[float, ...] | None = None
    embedding: NumberEmbedding | None = None
    embedding_dim: Count | None = None
    table: str | None = None


@register_feature("raw")
@dataclasses.dataclass(frozen=True)
class RawFeature(NumberFields):
    """Numbers: ``x`` is filled where missing, then one transform if requested, then ``(x - mean) / std``.

    The transform is ``log(1 + max(x, 0))`` with ``log``; with ``log10_above`` a, ``log10(x)`` where ``x > a``, else
    ``log10_default``; or an ``expression`` of x.

    With ``boundaries`` b it has a table instead: the id of x is the number of boundaries that are <= x.

    >>> import pyarrow as pa
    >>> batch = pa.RecordBatch.from_pydict({"price": [0.0, None, 3.0]})
    >>> RawFeature("price", mean=1.0, std=2.0, missing=1.0).convert(batch, Problems(3)).tolist()
    [[-0.5], [0.0], [1.0]]
    >>> RawFeature("price", boundaries=(1.0, 3.0), embedding_dim=4).convert(batch, Problems(3)).tolist()
    [0, 0, 2]

    Attributes:
      name: the name of the feature.
      column: the column of numbers; None: the column of the feature's name.
      compute: a column that is computed from others, instead of ``column``; see `sparrow.data.computed`.
      dim: the count of numbers in a row, in a list or a separated string.
      separator: the separator between the numbers of one string.
      log: whether to take the logarithm of 1 + x.
      log10_above: take the decimal logarithm of numbers above this, which is at least 0; None: do not.
      log10_default: the value for other numbers.
      expression: an expression of ``x``, such as ``sqrt(max(x, 0))``; see `sparrow.data.Expr`. It must stay finite.
      mean, std: mean and standard deviation to standardize with, after the transform if any.
      missing: the number that replaces a missing one (or NaN), before any transform; None: a malformed row.
      boundaries: increasing numbers that cut into buckets, after any transform.
      embedding: an embedding that the model learns as a function of the numbers, "mlp" or `AutoDis`; no boundaries.
      embedding_dim: the dim of the buckets' table, or of the ``embedding``.
      table: the name of the buckets' table; None: the feature's own.
      pooling: "sum" or "mean" of the embeddings of several numbers of a row; None: "sum".
    """

    _: dataclasses.KW_ONLY
    pooling: Pooling | None = None

    def __post_init__(self) -> None:
        where = self.check_fields("column", "separator", "table")
        self._check_transform(where)
        if self.embedding is not None:
            self._check_embedding(where)
        elif self.boundaries is not None:
            object.__setattr__(self, "boundaries", tuple(self.boundaries))
            fields.increasing(f"{where}: boundaries", self.boundaries)
            fields.integer(f"{where}: embedding_dim", self.embedding_dim)
        elif self.embedding_dim is not None or self.table is not None or self.pooling is not None:
            raise ValueError(f"{where}: embedding_dim, table and pooling belong to buckets; give boundaries as well")

    def _check_transform(self, where: str) -> None:
        if self.expression is not None:
            if self.log or self.log10_above is not None:
                raise ValueError(f"{where}: expression and logarithms are two transforms; keep one")
            if self._expression.variables != ("x",):
                raise ValueError(f"{where}: expression must have the one variable x, got {self.expression!r}")
        if self.log and self.log10_above is not None:
            raise ValueError(f"{where}: log and log10_above are two logarithms; keep one")

    def _check_embedding(self, where: str) -> None:
        if self.boundaries is not None or self.table is not None:
            raise ValueError(f"{where}: embedding and boundaries exclude each other, and an embedding has no table")
        if self.dim != 1 and isinstance(self.embedding, AutoDis):
            raise ValueError(f"{where}: autodis takes one number per row; leave out dim, or take mlp")
        fields.integer(f"{where}: embedding_dim", self.embedding_dim)

    @property
    def part(self) -> str:
        return "numbers" if self.boundaries is None else "ids"

    @property
    def width(self) -> int:
        return self.dim if self.boundaries is None or self.embedding_dim is None else self.embedding_dim

    @property
    def learned_embedding(self) -> tuple[NumberEmbedding, int] | None:
        return None if self.embedding is None or self.embedding_dim is None else (self.embedding, self.embedding_dim)

    @functools.cached_property
    def _expression(self) -> Expression:
        return Expression(self.expression or "x")

    @property
    def table_use(self) -> TableUse | None:
        """The table of the buckets, one row each; None without boundaries."""
        if self.boundaries is None or self.embedding_dim is None:
            return None
        buckets = len(self.boundaries) + 1
        pooling = None if self.dim == 1 else self.pooling or "sum"
        return TableUse(self.table or self.name, self.embedding_dim, pooling, lambda: buckets)

    def words_for(self) -> str:
        count = "numbers" if self.dim == 1 else f"lists of {self.dim} numbers"
        return count + ("; may be missing" if self.missing is not None else "")

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return (batch, dim) float32, or int32 buckets: (batch,), or `Ragged` where a row has several."""
        x = self.transform(self._read(columns, problems))
        if self.boundaries is None:
            return x.astype(np.float32)
        buckets = np.searchsorted(self.boundaries, x.reshape(-1), side="right").astype(np.int32)
        return buckets if self.dim == 1 else Ragged(buckets, np.arange(len(x) + 1, dtype=np.int64) * self.dim)

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        """Return the compiled conversion to numbers or buckets; NumPy transforms, because C++'s logarithms differ."""
        in_numpy = self.boundaries is not None and (self.dim != 1 or self._is_transformed)
        if in_numpy or self.compute is not None or not is_compiled(kinds[self.id_column]):
            return None
        plain = self.boundaries is not None or not self._is_transformed
        return Step(
            steps.NUMBERS if self.boundaries is None else steps.BUCKETS,
            self.columns,
            separator=self.separator,
            dim=self.dim,
            fill=self.missing or 0.0,
            is_required=self.missing is None,
            boundaries=self.boundaries or (),
            is_transformed=not plain,
        )

    @property
    def _is_transformed(self) -> bool:
        is_plain = not self.log and self.log10_above is None and self.expression is None
        return not is_plain or self.mean != 0.0 or self.std != 1.0

    def transform(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if self.expression is not None:
            x = self._by_expression(x)
        if self.log:
            x = np.log(np.maximum(x, 0.0) + 1.0)  # in float64, as exact as log1p in float32
        if self.log10_above is not None:
            above = x > self.log10_above
            x = np.where(above, np.log10(np.where(above, x, 1.0)), self.log10_default)
        if self.mean != 0.0 or self.std != 1.0:
            x = (x - self.mean) / self.std
        return x

    def _by_expression(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        made = self._expression({"x": Vector(x.reshape(-1))}, x.size).values.reshape(x.shape)
        if not (finite := np.isfinite(made)).all():
            at = tuple(np.argwhere(~finite)[0])
            raise DataError(
                f"feature '{self.name}': the expression {self.expression!r} gives {made[at]:g} for x = {x[at]:g}; "
                "change it so that it stays finite"
            )
        return made

    def _read(self, columns: Any, problems: Problems) -> npt.NDArray[np.float64]:
        name, dim = self.id_column, self.dim
        column = plain(self.source(columns, problems))
        flat = flatten(column, self.separator)
        absent = np.zeros(0, np.bool_)
        if flat.offsets is not None or dim != 1:
            counts = flat.lengths
            absent = (counts == 0) & column.is_null().to_numpy(zero_copy_only=False)  # a missing list: all are missing
            wrong = np.flatnonzero((counts != dim) & ~absent)
            if wrong.size:
                problems.add(
                    name, wrong, lambda i: f"feature '{self.name}' needs {dim} numbers per row, got {counts[wrong[i]]}"
                )
                return np.zeros((len(column), dim))
        parsed = numbers(flat.entries)
        parsed.report(name, problems, flat.row_of)
        x = parsed.values
        lacking = parsed.missing
        if absent.any():
            full = np.zeros((len(column), dim))
            gaps = np.ones((len(column), dim), np.bool_)
            full[~absent] = x.reshape(-1, dim)
            gaps[~absent] = False if lacking is None else lacking.reshape(-1, dim)
            x, lacking = full.reshape(-1), gaps.reshape(-1)
        if lacking is not None:
            if self.missing is None:
                problems.add(
                    name, np.flatnonzero(lacking) // dim, lambda i: f"feature '{self.name}' has a missing number"
                )
            x = np.where(lacking, self.missing or 0.0, x)
        return x.reshape(-1, dim)
