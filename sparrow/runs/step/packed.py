"""`PackedState`: the state between two steps on a GPU, in few arrays: its small ones are one.

A call of a compiled program makes an array of Python for each result, and drops one for each argument. That takes a
microsecond each, and the interpreter's lock, for which the threads of a feed wait meanwhile.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Final

import jax
import jax.numpy as jnp

from sparrow.embedding import Embedder, EmbeddingState
from sparrow.kernels.feed import Stored
from sparrow.runs.step.program import TrainState

SMALL: Final = 2**20
"""The most bytes of an array that becomes a part of the one: a step copies it, and larger ones are few."""

Layout = tuple[Stored | None, ...]
"""The place of each array among the small ones; None: it is none of them."""
Arrays = tuple[EmbeddingState, list[jax.Array], jax.Array]
"""Tables, other large arrays, and the small ones."""


@jax.tree_util.register_pytree_node_class
class PackedState:
    """A state whose small arrays are one, but for those of the tables."""

    def __init__(self, arrays: Arrays, structure: Any, layout: Layout) -> None:
        self._arrays, self._structure, self._layout = arrays, structure, layout

    @classmethod
    def of(cls, state: TrainState) -> PackedState:
        tables: Any = dataclasses.replace(state.optimizer.embedding, step=None, seed=None)  # type: ignore[arg-type]
        leaves, structure = jax.tree.flatten(state.parts())
        layout: list[Stored | None] = []
        words = 0
        for leaf in leaves:
            is_small = leaf.dtype in (jnp.float32, jnp.int32, jnp.uint32) and 4 * leaf.size <= SMALL
            layout.append(Stored(words, leaf.shape, leaf.dtype.name) if is_small else None)
            words += leaf.size if is_small else 0
        small = [leaf for leaf, place in zip(leaves, layout, strict=True) if place is not None]
        large = [leaf for leaf, place in zip(leaves, layout, strict=True) if place is None]
        return cls((tables, large, _joined(small)), structure, tuple(layout))

    def opened(self) -> TrainState:
        """Return the state itself."""
        tables, large, words = self._arrays
        own, others = iter(_split(self._layout, words)), iter(large)
        leaves = [next(others if place is None else own) for place in self._layout]
        return TrainState.joined(tables, jax.tree.unflatten(self._structure, leaves))

    def tree_flatten(self) -> tuple[Arrays, tuple[Any, Layout]]:
        return self._arrays, (self._structure, self._layout)

    @classmethod
    def tree_unflatten(cls, fixed: tuple[Any, Layout], arrays: Arrays) -> PackedState:
        return cls(arrays, *fixed)


def packs(embedder: Embedder) -> bool:
    """Return whether a run packs its state: on one GPU, where calls are short and their arrays many."""
    return embedder.shards is None and jax.default_backend() != "cpu"


def opened(state: TrainState | PackedState) -> TrainState:
    """Return a state itself."""
    return state.opened() if isinstance(state, PackedState) else state


@functools.partial(jax.jit, inline=True)
def _joined(arrays: list[jax.Array]) -> jax.Array:
    words = [jax.lax.bitcast_convert_type(array, jnp.int32).reshape(-1) for array in arrays]
    return jnp.concatenate(words or [jnp.zeros(0, jnp.int32)])


@functools.partial(jax.jit, static_argnums=0, inline=True)
def _split(layout: Layout, buffer: jax.Array) -> list[jax.Array]:
    return [place.cut(buffer) for place in layout if place is not None]
