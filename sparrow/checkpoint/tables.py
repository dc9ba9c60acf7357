"""Tables and slots of an `Embedder` by logical name, independent of the stacking."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator

import jax

from sparrow.checkpoint.blocks import Array, Key, TableRows
from sparrow.checkpoint.errors import CheckpointError
from sparrow.checkpoint.spread import Spread
from sparrow.embedding import Embedder, EmbeddingState

Reader = Callable[[Key], Iterable[tuple[int, Array]]]


def rows_of(embedder: Embedder, state: EmbeddingState) -> dict[Key, TableRows]:
    """Return the rows of every table and slot."""
    rows: dict[Key, TableRows] = {}
    for stack in embedder.stacks:
        spread = _spread(embedder, stack.name)
        arrays = embedder.arrays(state, stack)
        for table in stack.tables:
            at = stack.rows_of(table.name)
            for slot, array in arrays.items():
                rows[Key(table.name, slot or None)] = TableRows(array, at.start, at.stop - at.start, spread)
    return rows


def _spread(embedder: Embedder, stack: str) -> Spread | None:
    return None if embedder.shards is None else Spread(embedder.shards, embedder.sharded.layouts[stack])


def placed(embedder: Embedder, state: EmbeddingState, keys: Iterable[Key], read: Reader) -> EmbeddingState:
    """Return the state with the rows of ``keys`` replaced by the rows that ``read`` returns for them, block by block.

    ``state`` is donated: its arrays are written in place, so that no table is ever held twice.
    """
    state = embedder.without_caches(state)
    tables, slots = dict(state.tables), {stack: dict(held) for stack, held in state.slots.items()}
    stack_of = {table.name: stack for stack in embedder.stacks for table in stack.tables}
    for key in keys:
        stack = stack_of[key.table]
        held = tables if key.slot is None else slots[stack.name]
        place = stack.name if key.slot is None else key.slot
        start = stack.rows_of(key.table).start
        if (spread := _spread(embedder, stack.name)) is not None:
            held[place] = spread.placed(held[place], stack.rows_of(key.table), read(key))
            continue
        for first, block in read(key):
            if stack.apart:
                embedder.arrays(state, stack)[key.slot or ""][start + first : start + first + len(block)] = block
                continue
            for at, piece in _pieces(block.astype(held[place].dtype, copy=False)):
                held[place] = _overwrite(held[place], piece, start + first + at)
    return dataclasses.replace(state, tables=tables, slots=slots)


def _pieces(block: Array) -> Iterator[tuple[int, Array]]:
    """Return the block in pieces of a power of two of rows: a few compiled programs serve tables of all sizes."""
    at = 0
    while at < len(block):
        size = 1 << ((len(block) - at).bit_length() - 1)
        yield at, block[at : at + size]
        at += size


@functools.partial(jax.jit, donate_argnums=0)
def _overwrite(array: jax.Array, block: jax.Array, first: int) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(array, block, first, 0)


def check_shape(key: Key, saved: tuple[int, ...], here: tuple[int, ...]) -> None:
    """Refuses rows of another number or length."""
    if saved != here:
        raise CheckpointError(f"{key} has the shape {saved} in the checkpoint, {here} here")
