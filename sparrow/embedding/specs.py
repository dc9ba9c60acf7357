"""`TableSpec`, `Dynamic` and `FeatureSpec`: the tables, their ids, and the inputs that look ids up in them."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any, Final, Literal, TypeAlias

import jax
import jax.numpy as jnp

from sparrow import fields
from sparrow.embedding.host_memory import HostMemory
from sparrow.embedding.initializers import Uniform, draw
from sparrow.registry import answering
from sparrow.rules import Rule

Initializer: TypeAlias = Callable[..., jax.Array]
Combiner: TypeAlias = Literal["sum", "mean", "sqrtn"]
FeatureCombiner: TypeAlias = Literal["sum", "mean", "sqrtn", "table"] | None
InvalidIds: TypeAlias = Literal["error", "ignore", "hash"]

DTYPES: Final = ("float32", "bfloat16", "float16")
MAX_ROWS: Final = 2**31 - 2**28
"""The most rows that one array holds: row numbers are int32, and a batch needs some numbers past the last row."""


@answering
@dataclasses.dataclass(frozen=True, kw_only=True)
class Dynamic:
    """A vocabulary that grows and forgets: raw 64-bit ids get the rows of a table while they are in use.

    >>> Dynamic(admit=2, evict="lru").unknown
    'row'

    Attributes:
      admit: the condition for a row: an integer is the number of times that an id must have been seen; a number
        between 0 and 1 is its chance in each step.
      evict: the id whose row a new id gets when all are taken. "lru": the one that was not used for longest; "lfu": the
        one that was looked up least, by exact counts since it got its row; "distance_lfu": the one with the smallest
        count divided by one more than the steps since its last use. Ids of the step are spared, and at least 1 % of the
        rows are freed at once. "none": the new id stays unknown.
      expire_steps: steps without use after which an id loses its row; None: it never does. An id that comes back
        starts fresh.
      unknown: the values of ids without a row: "row" (all of them share row 0, which is trained) or "zeros".
      waiting: the most ids that are counted while they wait for a row, the oldest are forgotten first; None: as many
        as the table has rows.
    """

    admit: int | float = 1
    evict: Literal["lru", "lfu", "distance_lfu", "none"] = "lru"
    expire_steps: fields.Count | None = None
    unknown: Literal["row", "zeros"] = "row"
    waiting: fields.Count | None = None

    def __post_init__(self) -> None:
        if isinstance(self.admit, bool) or not isinstance(self.admit, numbers.Real) or not self.admit > 0:
            raise ValueError(f"dynamic: admit must be a count from 1 on, or a chance below 1, got {self.admit!r}")
        if self.admit >= 1:
            if self.admit != int(self.admit):
                raise ValueError(f"dynamic: admit must be an integer, or a chance below 1, got {self.admit!r}")
            fields.integer("dynamic: admit", int(self.admit), at_most=2**30)
        fields.check(self, "dynamic: ")

    @property
    def reserved(self) -> int:
        """Rows at the start of the table that no id gets."""
        return int(self.unknown == "row")


@answering
@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSpec:
    """A logical table: ``vocabulary_size`` rows of ``embedding_dim`` numbers, with their optimizer.

    >>> from sparrow.rules import RowwiseAdagrad
    >>> TableSpec(name="movies", vocabulary_size=1000, embedding_dim=16, optimizer=RowwiseAdagrad()).combiner
    'sum'

    Attributes:
      name: unique among the tables; initial values and checkpoints go by it.
      vocabulary_size: number of rows; ids are 0 to vocabulary_size - 1.
      embedding_dim: length of a row.
      optimizer: the rule, applied once per touched row and step.
      combiner: how the rows of a bag become one: "sum", "mean" (divided by Σw) or "sqrtn" (divided by √Σw²). A feature
        may have its own.
      initializer: any ``jax.nn.initializers`` function; None: uniform in ±1/√vocabulary_size.
      dtype: "float32", "bfloat16" or "float16"; rules always compute in float32.
      min_value, max_value: limits that updated rows are clamped to; None: no limit.
      stochastic_rounding: whether a 16-bit table is written with seeded stochastic rounding, or to nearest.
      dynamic: how raw 64-bit ids get rows and lose them; None: ids are row numbers. A row starts from the initializer,
        called for the shape (1, embedding_dim) with a key that depends on the id.
      memory: `HostMemory` keeps rows and slots in host memory, with a cache on the device; None: all on the device. The
        same where JAX runs on a CPU, whose memory is the host's.
    """

    name: str
    vocabulary_size: int
    embedding_dim: int
    optimizer: Rule
    combiner: Combiner = "sum"
    initializer: Initializer | None = None
    dtype: str = "float32"
    min_value: float | None = None
    max_value: float | None = None
    stochastic_rounding: bool = True
    dynamic: Dynamic | None = None
    memory: HostMemory | None = None

    def __post_init__(self) -> None:
        fields.string("TableSpec.name", self.name)
        table = f"TableSpec '{self.name}'"
        for field in ("vocabulary_size", "embedding_dim"):
            fields.integer(f"{table}: {field}", getattr(self, field), at_most=math.inf)
        if self.vocabulary_size > MAX_ROWS:
            raise ValueError(
                f"{table}: vocabulary_size must be at most {MAX_ROWS}, got {self.vocabulary_size}; "
                "hash the ids into fewer rows, or split the table"
            )
        if not isinstance(self.optimizer, Rule):
            is_optax = hasattr(self.optimizer, "init") and hasattr(self.optimizer, "update")
            given = "an optax transformation, which is for dense parameters" if is_optax else repr(self.optimizer)
            raise TypeError(
                f"{table}: optimizer must be a rule such as sparrow.rules.RowwiseAdagrad(0.05), got {given}"
            )
        fields.check(self, f"{table}: ")
        if self.initializer is not None and not callable(self.initializer):
            raise TypeError(f"{table}: initializer must be a function (key, shape, dtype), got {self.initializer!r}")
        object.__setattr__(self, "dtype", _dtype_name(table, self.dtype))
        for field in ("min_value", "max_value"):
            value = getattr(self, field)
            if value is not None and (not isinstance(value, numbers.Real) or math.isnan(value)):
                raise ValueError(f"{table}: {field} must be a number or None, got {value!r}")
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ValueError(f"{table}: min_value {self.min_value} is above max_value {self.max_value}")
        if self.dynamic is not None and not isinstance(self.dynamic, Dynamic):
            raise TypeError(f"{table}: dynamic must be a sparrow.Dynamic, got {self.dynamic!r}")
        if self.dynamic is not None and self.vocabulary_size <= self.dynamic.reserved:
            raise ValueError(
                f"{table}: vocabulary_size must be at least {self.dynamic.reserved + 1}, as unknown ids share one row, "
                f"got {self.vocabulary_size}"
            )
        if self.memory is not None and not isinstance(self.memory, HostMemory):
            raise TypeError(f"{table}: memory must be a sparrow.HostMemory or None, got {self.memory!r}")

    @property
    def has_limits(self) -> bool:
        return self.min_value is not None or self.max_value is not None

    @property
    def limits(self) -> dict[str, float]:
        """The smallest and the largest value of a row, by name; infinite where there is no limit."""
        ends = {"min_value": -math.inf, "max_value": math.inf}
        return {name: end if (own := getattr(self, name)) is None else own for name, end in ends.items()}

    @property
    def values(self) -> Initializer:
        """The initializer, or the default one."""
        limit = self.vocabulary_size**-0.5
        return self.initializer or Uniform(-limit, limit)

    def initial_values(self, key: jax.Array) -> jax.Array:
        """(vocabulary_size, embedding_dim) of the table's dtype."""
        shape = (self.vocabulary_size, self.embedding_dim)
        values: jax.Array = draw(self.values, shape, self.dtype, key)
        if values.shape != shape:
            raise ValueError(f"the initializer of table '{self.name}' returns {values.shape}, it must be {shape}")
        return values


@answering
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSpec:
    """A named input that looks ids up in one table. Several features may share a table.

    Attributes:
      name: its unique name, also of inputs, activations and gradients.
      table_spec: the table.
      invalid_ids: the policy for an id outside the table: "error" (refused, naming it), "ignore" (as if it were not
        there; in an ordered feature its row is zeros) or "hash" (a fixed hash sends it to some row; 64-bit ids and
        hashes of strings come in this way).
      combiner: "sum", "mean" or "sqrtn"; "table": the table's; None: the feature is ordered. The activations of an
        ordered feature are its rows, one per element, and `PackedBatch.offsets` has where each sequence ends.
    """

    name: str
    table_spec: TableSpec
    invalid_ids: InvalidIds = "error"
    combiner: FeatureCombiner = "table"

    def __post_init__(self) -> None:
        fields.string("FeatureSpec.name", self.name)
        if not isinstance(self.table_spec, TableSpec):
            raise TypeError(f"FeatureSpec '{self.name}': table_spec must be a TableSpec, got {self.table_spec!r}")
        fields.check(self, f"FeatureSpec '{self.name}': ")
        if self.table_spec.dynamic is not None:
            if self.invalid_ids == "hash":
                raise ValueError(f"FeatureSpec '{self.name}': a dynamic table takes every id; leave invalid_ids out")
            object.__setattr__(self, "invalid_ids", "ignore")  # no id is invalid, and one without a row reads zeros

    @property
    def is_ordered(self) -> bool:
        """Whether its rows stay in order, one per element."""
        return self.combiner is None

    @property
    def pooling(self) -> Combiner:
        """The combiner of the rows of a bag: its own, or the table's. An ordered feature has none."""
        if self.combiner is None:
            raise ValueError(f"feature '{self.name}' is ordered: its rows are not combined")
        return self.table_spec.combiner if self.combiner == "table" else self.combiner


def _dtype_name(table: str, dtype: Any) -> str:
    try:
        name = str(jnp.dtype(dtype).name)
    except TypeError:
        name = repr(dtype)
    fields.choice(f"{table}: dtype", name, DTYPES)
    return name


def collect_tables(features: Iterable[FeatureSpec]) -> dict[str, TableSpec]:
    """Return the tables of features, by name."""
    tables: dict[str, TableSpec] = {}
    for feature in features:
        table = feature.table_spec
        if tables.setdefault(table.name, table) != table:
            raise ValueError(
                f"two different tables are called '{table.name}'; features that share a table must share its TableSpec"
            )
    return tables


HEAD = ("table", "rows", "dim", "dtype", "optimizer", "features")


def tables_html(title: str, tables: Mapping[str, TableSpec], features: Iterable[FeatureSpec]) -> str:
    """Return one line for each table: its size, its rule and its features."""
    by_table: dict[str, list[str]] = {name: [] for name in tables}
    for feature in features:
        by_table[feature.table_spec.name].append(feature.name)
    lines = [
        (name, f"{t.vocabulary_size:,}", f"{t.embedding_dim}", t.dtype, t.optimizer.name, ", ".join(by_table[name]))
        for name, t in tables.items()
    ]
    head = "".join(f"<th>{name}</th>" for name in HEAD)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in lines)
    return f"<p><b>{escape(title)}</b></p><table><tr>{head}</tr>{body}</table>"
