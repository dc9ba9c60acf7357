"""Rows for the raw ids of a batch: found, or given out, on the device.

Maps count steps from 1 on: ids that another run brought were last used in step 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparrow.embedding.dynamic.first_rows import Arrays, put_back
from sparrow.embedding.stacking import Stack
from sparrow.kernels import ids
from sparrow.kernels.ids import Assigned, Changed, IdState, Settings, Undo


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


def missing_rows(stack: Stack, settings: Settings, short: Any, devices: int) -> str | None:
    """Return a sentence for the first table that lacks rows, or slots of its cache; None: none does."""
    where = f" on one of {devices} devices" if devices > 1 else ""
    where = f" in one of its groups{where}" if settings.groups and max(settings.groups) > 1 else where
    counts = settings.groups or [1] * len(stack.tables)
    tables = [table for table, count in zip(stack.tables, counts, strict=True) for _ in range(count)]
    of_cache = stack.apart and settings is stack.cache
    for table, segment, missing in zip(tables, settings.segments, short, strict=True):
        if missing > 0:
            needed = segment.rows + int(missing)
            if of_cache:
                return (
                    f"table '{table.name}': one step needs {needed} rows on the device, and the cache holds "
                    f"{segment.rows}; make memory.cache larger, or the batch smaller"
                )
            return (
                f"table '{table.name}': one step needs {needed} rows for its ids{where}, and there are {segment.rows}; "
                "make vocabulary_size (dynamic.rows in a config) larger, or the batch smaller"
            )
    return None
