"""Rows for the raw ids of a batch: found, or given out, on the device, and started with their first values.

Maps count steps from 1 on: ids that another run brought were last used in step 0. First values come from the
initializer, by table and id; their cost follows their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.initializers import Constant, Initializer, Uniform
from sparrow.embedding.ordering import after
from sparrow.embedding.specs import TableSpec
from sparrow.embedding.stacking import Stack, stable_hash
from sparrow.kernels import ids
from sparrow.kernels.cuda import start as cuda
from sparrow.kernels.ids import Assigned, Changed, IdState, Settings, Undo

Arrays = dict[str, jax.Array]
"""A stack's table under the name "", and its slots by name."""
LEAST, MOST = 256, 8192
"""Rows that are started at a time: a part of the batch within these."""


class Before(NamedTuple):
    """A stack before its ids were assigned: enough to undo it.

    Attributes:
      words: (N, 2) uint32, the raw ids.
      held: the map.
      fresh: the rows that were given new values.
      values: their table and slots before, as `Arrays`.
    """

    words: jax.Array
    held: Undo
    fresh: Changed
    values: Arrays


def find(
    settings: Settings, backend: str, state: IdState, words: jax.Array, tables: jax.Array, step: jax.Array
) -> jax.Array:
    """(N,) int32: the rows of ids; nothing changes."""
    segments = ids.group_of(settings, words, tables)
    return ids.choose(backend).find(settings, state, words, segments, step + 1)


def assign(
    settings: Settings,
    backend: str,
    state: IdState,
    words: jax.Array,
    tables: jax.Array,
    step: jax.Array,
    when: jax.Array | None,
) -> Assigned:
    """Find and give out rows; where ``when`` is false, all ids are absent. ``fresh`` and ``gone`` are by table."""
    if when is not None:
        tables = jnp.where(when, tables, -1)
    segments = ids.group_of(settings, words, tables)
    made = ids.choose(backend).assign(settings, state, words, segments, step + 1)
    fresh, gone = (one._replace(ends=one.ends[settings.ends - 1]) for one in (made.fresh, made.gone))
    return made._replace(fresh=fresh, gone=gone)


def undone(
    settings: Settings, backend: str, state: IdState, arrays: Arrays, before: Before, when: jax.Array
) -> tuple[IdState, Arrays]:
    """Return the map and the arrays of a stack as they were, where ``when`` is true."""
    held = ids.choose(backend).undone(settings, state, before.held, before.words, when)
    return held, put_back(arrays, before.values, before.fresh, when, backend)


def missing_rows(stack: Stack, settings: Settings, short: Any, devices: int, *, of_cache: bool) -> str | None:
    """Return a sentence for the first table that lacks rows, or slots of its cache; None: none does."""
    where = f" on one of {devices} devices" if devices > 1 else ""
    device = f"one of {devices} devices" if devices > 1 else "the device"
    where = f" in one of its groups{where}" if settings.groups and max(settings.groups) > 1 else where
    counts = settings.groups or [1] * len(stack.tables)
    tables = [table for table, count in zip(stack.tables, counts, strict=True) for _ in range(count)]
    for table, segment, missing in zip(tables, settings.segments, short, strict=True):
        if missing > 0:
            needed = segment.rows + int(missing)
            if of_cache:
                return (
                    f"table '{table.name}': one step needs {needed} rows on {device}, and the cache holds "
                    f"{segment.rows}; make memory.cache larger, or the batch smaller"
                )
            return (
                f"table '{table.name}': one step needs {needed} rows for its ids{where}, and there are {segment.rows}; "
                "make vocabulary_size (dynamic.rows in a config) larger, or the batch smaller"
            )
    return None


def started(stack: Stack, arrays: Arrays, seed: jax.Array, fresh: Changed, backend: str) -> tuple[Arrays, Arrays]:
    """Return the arrays of a stack with the rows of ``fresh`` at their start, and these rows as they were before.

    Tables whose initializers have the same function are drawn together, some rows at a time, in a loop that ends with
    the last fresh row. A GPU draws uniform and constant values in one launch: the host waits at each turn of a loop.
    """
    limits = [_limits(table) for table in stack.tables]
    if backend == "cuda" and None not in limits and cuda.is_known() and len(fresh.rows):
        names = [name for name, _ in stack.step.slots]
        slots = [[table.optimizer.slot_init(name) for name in names] for table in stack.tables]
        made, old = cuda.start(
            *([arrays[name] for name in ("", *names)], seed, fresh),
            *(_hashes(stack), np.array(limits, np.float32), np.array(slots, np.float32).reshape(len(limits), -1)),
        )
        return dict(zip(("", *names), made, strict=True)), dict(zip(("", *names), old, strict=True))
    before = _read(arrays, fresh)
    fresh = fresh._replace(ends=after(fresh.ends, before[""], 0))
    groups: dict[Any, list[int]] = {}
    for number, table in enumerate(stack.tables):
        function, numbers = _program(table)
        groups.setdefault((function, len(numbers)), []).append(number)
    for (function, _), members in groups.items():
        arrays = _started(stack, arrays, seed, fresh, function, members)
    return arrays, before


def put_back(arrays: Arrays, before: Arrays, fresh: Changed, when: jax.Array, backend: str) -> Arrays:
    """Return the arrays as they were before `started`, where ``when`` is true."""
    names = list(arrays)
    if backend == "cuda" and len(fresh.rows):
        made = cuda.put_back([arrays[name] for name in names], [before[name] for name in names], fresh, when)
        return dict(zip(names, made, strict=True))

    def put(at: jax.Array, chunk: int, held: Arrays) -> Arrays:
        rows = jax.lax.dynamic_slice_in_dim(fresh.rows, at, chunk)
        return {
            name: array.at[rows].set(jax.lax.dynamic_slice_in_dim(before[name], at, chunk), mode="drop")
            for name, array in held.items()
        }

    return _by_chunks(put, arrays, len(fresh.rows), jnp.where(when, fresh.ends[-1], 0))


def _read(arrays: Arrays, fresh: Changed) -> Arrays:
    size = len(fresh.rows)

    def read(at: jax.Array, chunk: int, held: Arrays) -> Arrays:
        rows = jax.lax.dynamic_slice_in_dim(fresh.rows, at, chunk)
        return {
            name: jax.lax.dynamic_update_slice_in_dim(to, arrays[name].at[rows].get(mode="fill", fill_value=0), at, 0)
            for name, to in held.items()
        }

    empty = {name: jnp.zeros((size, *array.shape[1:]), array.dtype) for name, array in arrays.items()}
    return _by_chunks(read, empty, size, fresh.ends[-1])


def _by_chunks(work: Callable[[jax.Array, int, Arrays], Arrays], arrays: Arrays, size: int, count: jax.Array) -> Arrays:
    """Return the arrays after ``work`` on the first ``count`` of ``size`` rows, some at a time."""
    if not size:
        return arrays
    chunk = min(size, max(LEAST, min(size // 16, MOST)))

    def body(carried: tuple[jax.Array, Arrays]) -> tuple[jax.Array, Arrays]:
        begin, held = carried
        # The last chunk overlaps the one before: the same values again.
        return begin + chunk, work(jnp.minimum(begin, size - chunk), chunk, held)

    return jax.lax.while_loop(lambda carried: carried[0] < count, body, (jnp.int32(0), arrays))[1]


def _started(
    stack: Stack,
    arrays: Arrays,
    seed: jax.Array,
    fresh: Changed,
    function: Callable[..., jax.Array],
    members: list[int],
) -> Arrays:
    rows = arrays[""].shape[0]
    programs = [_program(table) for table in stack.tables]
    own = np.array([number in members for number in range(len(stack.tables))])
    width = len(programs[members[0]][1])
    numbers = np.array([given if mine else (0,) * width for (_, given), mine in zip(programs, own, strict=True)])
    hashes = _hashes(stack)
    slots = {
        name: np.array([table.optimizer.slot_init(name) for table in stack.tables], np.float32)
        for name, _ in stack.step.slots
        if not stack.frozen
    }

    def start(at: jax.Array, chunk: int, held: Arrays) -> Arrays:
        numbered = at + jnp.arange(chunk, dtype=jnp.int32)
        tables = jnp.searchsorted(fresh.ends, numbered, side="right").astype(jnp.int32)
        tables = jnp.minimum(tables, len(stack.tables) - 1)
        mine = jnp.asarray(own)[tables] & (numbered < fresh.ends[-1])
        to = jnp.where(mine, jax.lax.dynamic_slice_in_dim(fresh.rows, at, chunk), rows)
        ids = jax.lax.dynamic_slice_in_dim(fresh.ids, at, chunk)
        parameters = jnp.asarray(numbers.reshape(len(own), width), jnp.float32)[tables]
        values = {
            "": _drawn(function, stack.dim, held[""].dtype, seed, jnp.asarray(hashes)[tables], ids, parameters),
            **{name: jnp.asarray(starts)[tables] for name, starts in slots.items()},
        }
        made = dict(held)
        for name, of_rows in values.items():
            wide = of_rows[:, None] if held[name].ndim > of_rows.ndim else of_rows
            wide = jnp.broadcast_to(wide, (chunk, *held[name].shape[1:])).astype(held[name].dtype)
            made[name] = held[name].at[to].set(wide, mode="drop")
        return made

    return _by_chunks(start, arrays, len(fresh.rows), fresh.ends[-1])


def _limits(table: TableSpec) -> tuple[float, float] | None:
    """Return the limits of uniform or constant values; None: of another kind."""
    given = table.values
    if isinstance(given, Constant):
        return (given.value, given.value) if math.isfinite(given.value) else None
    return (given.low, given.high) if isinstance(given, Uniform) else None


def _hashes(stack: Stack) -> npt.NDArray[np.uint32]:
    return np.array([stable_hash(table.name) for table in stack.tables], np.uint32)


def _program(table: TableSpec) -> tuple[Callable[..., jax.Array], tuple[float, ...]]:
    given = table.values
    return given.program if isinstance(given, Initializer) else (given, ())


def _drawn(
    function: Callable[..., jax.Array],
    dim: int,
    dtype: Any,
    seed: jax.Array,
    hashes: jax.Array,
    ids: jax.Array,
    numbers: jax.Array,
) -> jax.Array:
    """(N, dim): the first values of ids, each with a key of its own."""

    def one(table: jax.Array, halves: jax.Array, numbers: jax.Array) -> jax.Array:
        key = jax.random.fold_in(jax.random.key(seed), table)
        own = jax.random.fold_in(jax.random.fold_in(key, halves[1]), halves[0])
        return function(own, (1, dim), jnp.float32, *numbers)[0].astype(dtype)

    made: jax.Array = jax.vmap(one)(hashes, ids, numbers)
    return made
