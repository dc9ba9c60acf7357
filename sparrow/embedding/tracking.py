"""Rows that changed since they were last taken: one byte per row, set by each update, with a bit for each taker.

The bytes are part of the state (`EmbeddingState.touched`) once `Embedder.tracked` has added them. An update sets all
bits of the rows that it touches; `taken` gathers the rows that have a taker's bit, on their devices, and clears it. A
step that is skipped touches nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.embedding.stacking import Stack
from sparrow.embedding.state import EmbeddingState

if TYPE_CHECKING:
    from sparrow.embedding.embedder import Embedder

CHECKPOINTS: Final = 1
EXPORTS: Final = 2
"""The bits of the takers."""
LEAST: Final = 1024
"""Rows are gathered in arrays of LEAST times a power of two, so that few programs are compiled."""


class ChangedRows(NamedTuple):
    """Rows of a table that changed.

    Attributes:
      rows: (N,) int32, ascending.
      arrays: the new values by slot, "" for the table itself: (N, dim) or (N,).
    """

    rows: npt.NDArray[np.int32]
    arrays: dict[str, npt.NDArray[Any]]


def mark(touched: Mapping[str, jax.Array], rows: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    """Return the bytes, set for ``rows``; rows beyond the last are padding."""
    return {
        name: held.at[rows[name].reshape(-1)].set(jnp.uint8(255), mode="drop") if name in rows else held
        for name, held in touched.items()
    }


def taken(
    embedder: Embedder, state: EmbeddingState, taker: int
) -> tuple[EmbeddingState, Callable[[], dict[str, ChangedRows]]]:
    """Return the state with the bit of ``taker`` cleared, and the rows that had it, by table.

    The rows are gathered on their devices at once, and come to the host when the function is called, in any thread. Of
    several processes, each has its own rows.
    """
    found = [
        (stack, part, touched, arrays)
        for stack in embedder.stacks
        if stack.name in state.touched
        for part, touched, arrays in _parts(embedder, state, stack)
    ]
    numbers = _numbers([touched for _, _, touched, _ in found], taker)
    gathered = [
        (stack, part, count, rows, _values(arrays, rows))
        for (stack, part, _, arrays), (count, rows) in zip(found, numbers, strict=True)
        if count
    ]
    return cleared(state, taker), functools.partial(_by_table, embedder, gathered)


def cleared(state: EmbeddingState, taker: int) -> EmbeddingState:
    """Return the state with the bit of ``taker`` cleared."""
    return dataclasses.replace(state, touched={name: _cleared(held, taker) for name, held in state.touched.items()})


def _parts(embedder: Embedder, state: EmbeddingState, stack: Stack) -> Iterator[tuple[int, jax.Array, Any]]:
    """Yield the bytes and arrays of a stack on each device of this process, with the number of the device's part."""
    touched = state.touched[stack.name]
    arrays = {"": state.tables[stack.name], **state.slots[stack.name]}
    if embedder.shards is None:
        yield 0, touched, arrays
        return
    by_device = {name: {one.device: one.data for one in a.addressable_shards} for name, a in arrays.items()}
    copies = embedder.sharded.layouts[stack.name].copies
    for shard in touched.addressable_shards:
        part = (shard.index[0].start or 0) // len(shard.data)
        if not (copies and part):  # every part has the same rows then
            yield part, shard.data, {name: held[shard.device] for name, held in by_device.items()}


def _numbers(touched: list[jax.Array], taker: int) -> list[tuple[int, Any]]:
    """Return the marked rows on each device, filled up to a few sizes with rows past the last, and their number.

    A CPU finds them by NumPy: XLA's own code takes ten times longer.
    """
    if all(device.platform == "cpu" for held in touched for device in held.devices()):
        masks = jax.device_get([_has(held, taker) for held in touched])
        found = [(held, np.flatnonzero(mask)) for held, mask in zip(touched, masks, strict=True)]
        return [(len(rows), _filled(rows, held)) for held, rows in found]
    counts = [int(count) for count in jax.device_get([_count(held, taker) for held in touched])]
    return [
        (count, _nonzero(held, taker, _size(count, held)) if count else None)
        for held, count in zip(touched, counts, strict=True)
    ]


def _size(count: int, touched: jax.Array) -> int:
    return min(LEAST << max(0, (count - 1) // LEAST).bit_length(), len(touched))


def _filled(rows: npt.NDArray[np.int64], touched: jax.Array) -> jax.Array:
    made = np.full(_size(len(rows), touched), len(touched), np.int32)
    made[: len(rows)] = rows
    sent: jax.Array = jax.device_put(made, next(iter(touched.devices())))
    return sent


def _by_table(embedder: Embedder, gathered: list[Any]) -> dict[str, ChangedRows]:
    made: dict[str, dict[int, list[tuple[Any, dict[str, Any]]]]] = {}
    for stack, part, count, at, values in gathered:
        local, layout = (
            np.asarray(at)[:count],
            None if embedder.shards is None else embedder.sharded.layouts[stack.name],
        )
        rows, piece = (local, 0) if layout is None else (layout.logical(part, local), int(layout.piece(part)))
        arrays = {name: np.asarray(array)[:count] for name, array in values.items()}
        for table in stack.tables:
            span = stack.rows_of(table.name)
            mine = np.flatnonzero((rows >= span.start) & (rows < span.stop))
            if len(mine):
                own = {name: array[mine] for name, array in arrays.items()}
                made.setdefault(table.name, {}).setdefault(piece, []).append((rows[mine] - span.start, own))
    return {name: _with_all_columns([_joined(own[piece]) for piece in sorted(own)]) for name, own in made.items()}


def _with_all_columns(pieces: list[ChangedRows]) -> ChangedRows:
    """Return complete rows, from the pieces of their columns, each of which has the same rows."""
    arrays = {
        name: own if own.ndim == 1 else np.concatenate([piece.arrays[name] for piece in pieces], axis=1)
        for name, own in pieces[0].arrays.items()
    }
    return ChangedRows(pieces[0].rows, arrays)


def _joined(pieces: list[tuple[Any, dict[str, Any]]]) -> ChangedRows:
    rows = np.concatenate([rows for rows, _ in pieces])
    order = np.argsort(rows, kind="stable")
    arrays = {name: np.concatenate([own[name] for _, own in pieces])[order] for name in pieces[0][1]}
    return ChangedRows(rows[order].astype(np.int32), arrays)


@jax.jit
def _count(touched: jax.Array, taker: int) -> jax.Array:
    return jnp.count_nonzero(touched & jnp.uint8(taker))


@jax.jit
def _has(touched: jax.Array, taker: int) -> jax.Array:
    marked: jax.Array = (touched & jnp.uint8(taker)) != 0
    return marked


@functools.partial(jax.jit, static_argnums=2)
def _nonzero(touched: jax.Array, taker: int, size: int) -> jax.Array:
    # Only marked rows are written: `jnp.nonzero` adds up all rows, by atomic additions at neighboring addresses.
    marked, rows = (touched & jnp.uint8(taker)) != 0, jnp.arange(len(touched), dtype=jnp.int32)
    places = jnp.where(marked, jnp.cumsum(marked, dtype=jnp.int32) - 1, size)
    return jnp.full(size, len(touched), jnp.int32).at[places].set(rows, mode="drop")


@jax.jit
def _values(arrays: dict[str, jax.Array], rows: jax.Array) -> dict[str, jax.Array]:
    return {name: array.at[rows].get(mode="clip") for name, array in arrays.items()}


@jax.jit
def _cleared(touched: jax.Array, taker: int) -> jax.Array:
    left: jax.Array = touched & ~jnp.uint8(taker)
    return left
