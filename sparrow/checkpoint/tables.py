"""Tables and slots of an `Embedder` by logical name, independent of the stacking; all other leaves by their path."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.checkpoint.blocks import Array, Key, TableRows
from sparrow.checkpoint.errors import CheckpointError
from sparrow.checkpoint.spread import Spread
from sparrow.embedding import Embedder, EmbeddingState
from sparrow.errors import shown
from sparrow.trees import named_leaves

Reader = Callable[[Key], Iterable[tuple[int, Array]]]
AHEAD: Final = 8
"""Blocks that are held while they are stored."""


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
            if stack.apart:  # in place
                spread.placed(embedder.arrays(state, stack)[key.slot or ""], stack.rows_of(key.table), read(key))
            else:
                held[place] = spread.placed(held[place], stack.rows_of(key.table), read(key))
            continue
        for number, (first, block) in enumerate(read(key)):
            if stack.apart:
                embedder.arrays(state, stack)[key.slot or ""][start + first : start + first + len(block)] = block
                continue
            for at, piece in _pieces(block.astype(held[place].dtype, copy=False)):
                held[place] = _overwrite(held[place], piece, start + first + at)
            if number % AHEAD == AHEAD - 1:  # a busy machine reads blocks sooner than it stores them
                jax.block_until_ready(held[place])  # type: ignore[no-untyped-call]
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


def named(tree: Any) -> dict[str, npt.NDArray[Any]]:
    """Return copies of the leaves on the host, by their path; random keys as their numbers, Python numbers as arrays.

    Refuse a leaf that is neither an array of numbers nor a number.

    >>> {name: array.tolist() for name, array in named({"a": {"b": jnp.ones(2)}, "c": (jnp.zeros(()),)}).items()}
    {'a/b': [1.0, 1.0], 'c/0': 0.0}
    """
    leaves = named_leaves(tree)
    for leaf in leaves.values():
        if isinstance(leaf, jax.Array) and not _is_key(leaf):
            leaf.copy_to_host_async()  # all at once; one after the other each waits for its own
    # A copy, never a view: on the CPU the next step reuses the leaf's own memory.
    return {name: _copied(name, leaf) for name, leaf in leaves.items()}


def _copied(name: str, leaf: Any) -> npt.NDArray[Any]:
    array = np.array(leaf if is_scalar(leaf) else plain(leaf)) if is_scalar(leaf) or hasattr(leaf, "dtype") else None
    if array is None or not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.bool_, jnp.integer, jnp.floating)):
        kind = type(leaf).__name__ if array is None else f"{type(leaf).__name__} of {array.dtype}"
        raise CheckpointError(
            f"'{name}' is {shown(leaf)} ({kind}), which a checkpoint does not hold; a state holds arrays and numbers, "
            "plain values go into `about`"
        )
    return array


def is_scalar(leaf: Any) -> bool:
    """Return whether a leaf is a number of Python; those of NumPy are arrays."""
    return type(leaf) in (bool, int, float)


def unnamed(like: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a tree like ``like`` with the leaves of ``arrays``; refuse a leaf that is missing or of another shape."""
    leaves = [_restored(name, leaf, arrays) for name, leaf in named_leaves(like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _restored(name: str, leaf: Any, arrays: Mapping[str, Any]) -> Any:
    if name not in arrays:
        raise CheckpointError(f"the checkpoint has no '{name}'")
    array, expected = arrays[name], np.asarray(leaf) if is_scalar(leaf) else plain(leaf)
    if array.shape != expected.shape:
        raise CheckpointError(f"'{name}' has the shape {array.shape} in the checkpoint, {expected.shape} here")
    if is_scalar(leaf):
        return np.asarray(array).item()
    value = jnp.asarray(array, expected.dtype)
    return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else value


def _is_key(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def plain(array: Any) -> Any:
    """Return an array of numbers, also for a random key."""
    return jax.random.key_data(array) if _is_key(array) else array
