"""Stacks: tables of one dim, dtype and rule kind live in one array, so that one kernel serves them all."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.specs import MAX_ROWS, TableSpec
from sparrow.kernels import GOLDEN, LIMITS, RowStep, StepScalars, ids, mix
from sparrow.rules import PER_ROW, SGD, Rule

LEAST_GROUPED = 1024
"""Dynamic tables with fewer rows have one group of ids by device: small groups would fill unequally."""
MOST_DYNAMIC = 256
"""Dynamic tables of a stack: backend cuda takes 2,048 groups of ids."""


@dataclasses.dataclass(frozen=True)
class Stack:
    """Tables that share one array: table i holds rows ``first_rows[i]`` up to ``first_rows[i + 1]``.

    Attributes:
      name: of the first table, and the number of others.
      tables: the tables.
      step: the update of a row.
      apart: whether rows are in host memory, and the arrays on the device hold a cache of them.
    """

    name: str
    tables: tuple[TableSpec, ...]
    step: RowStep
    apart: bool = False

    @property
    def is_dynamic(self) -> bool:
        """Whether raw ids get its rows while they are in use."""
        return self.tables[0].dynamic is not None

    @functools.cached_property
    def cache(self) -> ids.Settings:
        """The settings of the map from rows to slots on one device: `cache_of_one`."""
        return self.cache_of_one(1)

    def cache_of_one(self, devices: int) -> ids.Settings:
        """Return the settings of the map from rows to slots of each of ``devices``, a segment for each table."""
        held = [0 if one.memory is None else one.memory.rows(one.vocabulary_size) for one in self.tables]
        ends = np.cumsum([-(-rows // devices) for rows in held]).tolist()
        begins = (0, *ends[:-1])
        return ids.settings((ids.Segment(a, b, ends[-1]) for a, b in zip(begins, ends, strict=True)), ends[-1])

    def ids_of_one(self, devices: int, local_rows: int) -> ids.Settings:
        """Return the settings of the map of each of ``devices``. A dynamic table is alone in its stack there."""
        made = _segments(self.tables[0], devices, 0, local_rows)
        return ids.settings(made, local_rows, [len(made)])

    @functools.cached_property
    def ids(self) -> ids.Settings:
        """The settings of the map from ids to rows, of a dynamic stack on one device."""
        made = [
            _segments(table, 1, start, self.num_rows) for table, start in zip(self.tables, self.first_rows, strict=True)
        ]
        return ids.settings(itertools.chain(*made), self.num_rows, map(len, made))

    @property
    def held_rows(self) -> int:
        """The rows of the arrays on the device: all of the stack, or of its cache."""
        return self.cache.rows if self.apart else self.num_rows

    @property
    def frozen(self) -> bool:
        """Whether its tables are never updated."""
        return self.tables[0].optimizer.frozen

    @functools.cached_property
    def num_rows(self) -> int:
        return sum(table.vocabulary_size for table in self.tables)

    @property
    def dim(self) -> int:
        return self.step.dim

    @functools.cached_property
    def first_rows(self) -> tuple[int, ...]:
        """Where each table begins."""
        return tuple(itertools.accumulate((table.vocabulary_size for table in self.tables[:-1]), initial=0))

    def rows_of(self, table: str) -> slice:
        return self._rows[table]

    @functools.cached_property
    def _rows(self) -> dict[str, slice]:
        starts = zip(self.tables, self.first_rows, strict=True)
        return {table.name: slice(start, start + table.vocabulary_size) for table, start in starts}

    def scalars(self, step: jax.Array, seed: jax.Array, logical_rows: jax.Array | None = None) -> StepScalars:
        """Return the numbers of optimizer step ``step``, one row per table; ``logical_rows`` as in `StepScalars`."""
        starts = [segment.begin for segment in self.cache.segments] if self.apart else self.first_rows
        distinct, numbers = self._distinct
        hyper = jnp.array([self._hyper(table, step) for table in distinct], jnp.float32)
        names = jnp.array([stable_hash(table.name) for table in self.tables], jnp.uint32)
        return StepScalars(
            hyper=hyper.reshape(len(distinct), len(self.step.scalars))[numbers],
            seeds=mix(mix(names + seed) + step.astype(jnp.uint32) * jnp.uint32(GOLDEN)),
            first_rows=jnp.array(starts, jnp.int32),
            logical_rows=logical_rows,
        )

    @functools.cached_property
    def _distinct(self) -> tuple[list[TableSpec], npt.NDArray[np.int32]]:
        """A table of each rule and limits, and the number of its own among them for each table."""
        found: dict[object, tuple[int, TableSpec]] = {}
        numbers = []
        for table in self.tables:
            alike = (_same(table.optimizer), table.min_value, table.max_value)
            numbers.append(found.setdefault(alike, (len(found), table))[0])
        return [table for _, table in found.values()], np.array(numbers, np.int32)

    def _hyper(self, table: TableSpec, step: jax.Array) -> list[jax.Array]:
        values = dict(table.optimizer.hyper(step))
        if self.step.limits:
            values |= table.limits
        return [jnp.asarray(values[name], jnp.float32) for name in self.step.scalars]


def stack_tables(
    tables: Sequence[TableSpec],
    *,
    dynamic_alone: bool = False,
    apart: bool = False,
    places: Mapping[str, object] = MappingProxyType({}),
) -> tuple[Stack, ...]:
    """Group tables that one kernel can serve, in the order given.

    ``dynamic_alone``: each dynamic one by itself. ``apart``: host memory is not the memory of the device. ``places``:
    by table, for tables that cannot be in one array.

    >>> from sparrow.rules import SGD
    >>> specs = [TableSpec(name=n, vocabulary_size=10, embedding_dim=d, optimizer=SGD(lr))
    ...          for n, d, lr in [("a", 4, 0.1), ("b", 8, 0.1), ("c", 4, 0.2)]]
    >>> [[t.name for t in stack.tables] for stack in stack_tables(specs)]
    [['a', 'c'], ['b']]
    """
    groups: dict[object, list[list[TableSpec]]] = {}
    for table in tables:
        step = row_step(table)
        rule = table.optimizer
        alike: tuple[object, ...] = (
            table.embedding_dim,
            table.dtype,
            rule.frozen or rule.kind(),
            step.limits,
            step.stochastic,
        )
        alike += (apart and table.memory is not None, table.dynamic is not None, places.get(table.name))
        alike += (table.name if dynamic_alone and table.dynamic is not None else "",)
        stacks = groups.setdefault(alike, [[]])
        many = table.dynamic is not None and len(stacks[-1]) == MOST_DYNAMIC
        if many or sum(other.vocabulary_size for other in stacks[-1]) + table.vocabulary_size > MAX_ROWS:
            stacks.append([])
        stacks[-1].append(table)
    made = []
    for first, *others in itertools.chain(*groups.values()):
        name = f"{first.name}+{len(others)}" if others else first.name
        made.append(Stack(name, (first, *others), row_step(first), apart and first.memory is not None))
    return tuple(made)


def row_step(table: TableSpec) -> RowStep:
    """Return the row step of a table, after checking its rule against its declaration."""
    rule = SGD(0.0) if table.optimizer.frozen else table.optimizer
    limits = LIMITS if table.has_limits else ()
    step = RowStep(
        rule=rule.without_numbers(),
        slots=tuple((name, slot.layout) for name, slot in rule.slots.items()),
        scalars=(*rule.hyper_names(), *limits),
        dim=table.embedding_dim,
        dtype=table.dtype,
        limits=table.has_limits,
        stochastic=table.stochastic_rounding and table.dtype != "float32",
    )
    check_rule(step)
    return step


@functools.lru_cache(maxsize=1024)  # most tables have the rule of another
def check_rule(step: RowStep) -> None:
    """Raise where a rule's update does not return what its slots promise."""
    rule = step.rule
    row: Any = jax.eval_shape(lambda: jnp.zeros(step.dim, jnp.float32))
    number: Any = jax.eval_shape(lambda: jnp.zeros((), jnp.float32))
    slots = {name: number if layout == PER_ROW else row for name, layout in step.slots}
    hyper = dict.fromkeys(step.scalars, number)

    def update(row: jax.Array, grad: jax.Array, slots: dict[str, jax.Array], hyper: dict[str, jax.Array]) -> object:
        return rule.update(row, grad, slots, SimpleNamespace(**hyper))

    result = jax.eval_shape(update, row, row, slots, hyper)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        raise TypeError(f"{rule.name}.update must return (row, slots), a row and a dict, got {result!r}")
    new_row, new_slots = result
    if set(new_slots) != set(slots):
        raise ValueError(
            f"{rule.name}.update returns the slots {sorted(new_slots)}, but the rule declares {sorted(slots)}: "
            "they must be the same"
        )
    for what, new, old in [("row", new_row, row), *((f"slot '{k}'", new_slots[k], slots[k]) for k in slots)]:
        if new.shape != old.shape or new.dtype != old.dtype:
            raise ValueError(
                f"{rule.name}.update returns {what} as {new.dtype}{list(new.shape)}, it must be "
                f"{old.dtype}{list(old.shape)}"
            )


def _segments(table: TableSpec, devices: int, first: int, none: int) -> list[ids.Segment]:
    """Return the groups of a dynamic table's ids on each of ``devices``, equally large; ``first``: its first row there.

    Each device has its own row for unknown ids. Small tables have one group by device, as have those that never evict:
    each of their rows is for any id.
    """
    dynamic = table.dynamic
    if dynamic is None:
        raise ValueError(f"table '{table.name}' is not dynamic")
    counts = dynamic.admit > 1
    evicts = dynamic.evict != "none"
    grouped = evicts and table.vocabulary_size >= LEAST_GROUPED and ids.GROUPS % devices == 0
    groups = ids.GROUPS // devices if grouped else 1
    each = table.vocabulary_size // (devices * groups)
    if each <= dynamic.reserved:
        raise ValueError(
            f"table '{table.name}' has {table.vocabulary_size} rows, too few for {devices} devices; give it more"
        )
    one = ids.Segment(
        begin=first + dynamic.reserved,
        end=first + each,
        unknown=first if dynamic.reserved else none,
        admit=int(dynamic.admit) if counts else 1,
        chance=int(dynamic.admit * 2.0**64) if dynamic.admit < 1 else 0,
        seed=stable_hash(table.name),
        policy={"none": ids.NONE, "lru": ids.LRU, "lfu": ids.LFU, "distance_lfu": ids.DISTANCE_LFU}[dynamic.evict],
        expire=dynamic.expire_steps or 0,
        waiting=-(-(dynamic.waiting or table.vocabulary_size) // (devices * groups)) if counts else 0,
    )
    return [one._replace(begin=one.begin + each * n, end=one.end + each * n) for n in range(groups)]


def stable_hash(name: str) -> int:
    """32 bits that depend on the name alone."""
    return zlib.crc32(name.encode())


def _same(rule: Rule) -> object:
    """Return a key that rules of the same numbers share; a rule that cannot be hashed has its own."""
    try:
        hash(rule)
    except TypeError:
        return id(rule)
    return rule
