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
BLOCK_BYTES: Final = 16 << 20
"""Rows are gathered in blocks of one size, so that programs are compiled once."""


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
        (stack, part, (touched, arrays))
        for stack in embedder.stacks
        if stack.name in state.touched
        for part, touched, arrays in _parts(embedder, state, stack)
    ]
    gathered = [
        (stack, part, *own)
        for (stack, part, _), own in zip(found, _marked([held for _, _, held in found], taker), strict=True)
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


class _Marked(NamedTuple):
    """Rows of one device and their values by slot, in blocks, and the number of those that are not padding."""

    number: int
    rows: list[Any]
    values: list[dict[str, Any]]


def _marked(held: list[tuple[jax.Array, dict[str, jax.Array]]], taker: int) -> list[_Marked]:
    """Return the marked rows on each device: of others than CPUs in one block at least, which compiles the programs.

    A CPU finds the rows by NumPy: XLA's own code takes ten times longer.
    """
    if all(_is_on_cpu(touched) for touched, _ in held):
        masks = jax.device_get([_has(touched, taker) for touched, _ in held])
        found = [np.flatnonzero(mask).astype(np.int32) for mask in masks]
        return [
            _Marked(len(rows), [rows], [{name: np.asarray(array)[rows] for name, array in arrays.items()}])
            for rows, (_, arrays) in zip(found, held, strict=True)
        ]
    places = [_places(touched, taker) for touched, _ in held]
    counts = [int(count) for count in jax.device_get([count for _, count in places])]
    made = []
    for count, (own, _), (_, arrays) in zip(counts, places, held, strict=True):
        size = _block_rows(arrays)
        rows = [_rows(own, first, size) for first in _firsts(count, size)]
        made.append(_Marked(count, rows, [_values(arrays, block) for block in rows]))
    return made


def _is_on_cpu(array: jax.Array) -> bool:
    return all(device.platform == "cpu" for device in array.devices())


def _block_rows(arrays: Mapping[str, jax.Array]) -> int:
    widest = max(array.nbytes // len(array) for array in arrays.values())
    return min(max(BLOCK_BYTES // max(widest, 1), 1), len(arrays[""]))


def _firsts(count: int, size: int) -> range:
    return range(0, max(count, 1), size)


def _by_table(embedder: Embedder, gathered: list[Any]) -> dict[str, ChangedRows]:
    made: dict[str, dict[int, list[ChangedRows]]] = {}
    for stack, part, count, blocks, values in gathered:
        if not count:
            continue
        piece, rows = 0, _of_blocks(blocks, count)
        if embedder.shards is not None:
            layout = embedder.sharded.layouts[stack.name]
            piece, rows = int(layout.piece(part)), layout.logical(part, rows)
        arrays = {name: _of_blocks([block[name] for block in values], count) for name in values[0]}
        changed = _joined([ChangedRows(rows, arrays)])
        for table in stack.tables:
            span = stack.rows_of(table.name)
            begin, end = np.searchsorted(changed.rows, [span.start, span.stop])
            if begin < end:
                own = {name: array[begin:end] for name, array in changed.arrays.items()}
                mine = ChangedRows(changed.rows[begin:end] - np.int32(span.start), own)
                made.setdefault(table.name, {}).setdefault(piece, []).append(mine)
    return {name: _with_all_columns([_joined(own[piece]) for piece in sorted(own)]) for name, own in made.items()}


def _of_blocks(blocks: list[Any], count: int) -> npt.NDArray[Any]:
    """Return the first ``count`` elements of blocks, on the host."""
    held = [np.asarray(block) for block in blocks]
    return (held[0] if len(held) == 1 else np.concatenate(held))[:count]


def _with_all_columns(pieces: list[ChangedRows]) -> ChangedRows:
    """Return complete rows, from the pieces of their columns, each of which has the same rows."""
    arrays = {
        name: own if own.ndim == 1 else np.concatenate([piece.arrays[name] for piece in pieces], axis=1)
        for name, own in pieces[0].arrays.items()
    }
    return ChangedRows(pieces[0].rows, arrays)


def _joined(pieces: list[ChangedRows]) -> ChangedRows:
    """Return the rows of several pieces in order."""
    rows = np.concatenate([piece.rows for piece in pieces])
    if (rows[:-1] < rows[1:]).all():
        order: Any = slice(None)  # the arrays of one piece are not copied
    else:
        order = np.argsort(rows, kind="stable")
    held = {name: [piece.arrays[name] for piece in pieces] for name in pieces[0].arrays}
    arrays = {name: (own[0] if len(own) == 1 else np.concatenate(own))[order] for name, own in held.items()}
    return ChangedRows(rows[order].astype(np.int32), arrays)


@jax.jit
def _has(touched: jax.Array, taker: int) -> jax.Array:
    marked: jax.Array = (touched & jnp.uint8(taker)) != 0
    return marked


@jax.jit
def _places(touched: jax.Array, taker: int) -> tuple[jax.Array, jax.Array]:
    """Return the place of each marked row among them, a place past all for others; and the number of marked rows."""
    marked = (touched & jnp.uint8(taker)) != 0
    ends = jnp.cumsum(marked, dtype=jnp.int32)
    return jnp.where(marked, ends - 1, len(touched)), ends[-1]


@functools.partial(jax.jit, static_argnums=2)
def _rows(places: jax.Array, first: int, size: int) -> jax.Array:
    # Only marked rows are written: `jnp.nonzero` adds up all rows, by atomic additions at neighboring addresses.
    here = jnp.where(places >= first, places - first, size)
    every = jnp.arange(len(places), dtype=jnp.int32)
    return jnp.full(size, len(places) - 1, jnp.int32).at[here].set(every, mode="drop")


@jax.jit
def _values(arrays: dict[str, jax.Array], rows: jax.Array) -> dict[str, jax.Array]:
    return {name: array.at[rows].get(mode="clip") for name, array in arrays.items()}


@jax.jit
def _cleared(touched: jax.Array, taker: int) -> jax.Array:
    left: jax.Array = touched & ~jnp.uint8(taker)
    return left
