"""Rows for the raw ids of a batch: found, or given out, on the device.

Maps count steps from 1 on: ids that another run brought were last used in step 0.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from sparrow.embedding.dynamic.first_rows import Arrays, started
from sparrow.embedding.stacking import Stack
from sparrow.kernels import Lookups, ids
from sparrow.kernels.ids import IdState, Settings


def find(
    settings: Settings, backend: str, state: IdState, words: jax.Array, segments: jax.Array, step: jax.Array
) -> jax.Array:
    """(N,) int32: the rows of ids; nothing changes."""
    return ids.choose(backend).find(settings, state, words, segments, step + 1)


def found(
    settings: Settings, backend: str, state: IdState, lookups: Lookups, words: jax.Array, step: jax.Array
) -> Lookups:
    """Return lookups with rows instead of segments."""
    return dataclasses.replace(lookups, ids=find(settings, backend, state, words, lookups.ids, step))


def assign(
    stack: Stack,
    settings: Settings,
    backend: str,
    state: IdState,
    arrays: Arrays,
    words: jax.Array,
    segments: jax.Array,
    step: jax.Array,
    seed: jax.Array,
    when: jax.Array | None,
) -> tuple[IdState, Arrays, jax.Array]:
    """Find and give out rows, and start the fresh ones; where ``when`` is false, all ids are absent.

    Return the ids, table and slots after it, and the row of each entry.
    """
    if when is not None:
        segments = jnp.where(when, segments, -1)
    made = ids.choose(backend).assign(settings, state, words, segments, step + 1)
    return made.state, started(stack, arrays, seed, made.fresh), made.rows


def missing_rows(stack: Stack, settings: Settings, short: Any) -> str | None:
    """Return a sentence for the first table that lacks rows; None: none does."""
    for table, segment, missing in zip(stack.tables, settings.segments, short, strict=True):
        if missing > 0:
            needed = segment.rows + int(missing)
            return (
                f"table '{table.name}': one step needs {needed} rows for its ids, and there are {segment.rows}; "
                "make vocabulary_size (dynamic.rows in a config) larger, or the batch smaller"
            )
    return None
