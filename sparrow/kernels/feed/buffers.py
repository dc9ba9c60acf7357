"""A batch as one array: one transfer moves all inputs of a step to the device.

Every array of a batch has values of 32 bits. They lie one after the other in one buffer of words, and the jitted
functions cut it apart again, at no cost: the places are part of the program.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed import pool

ALIGNED: Final = 16
"""Words: arrays begin at multiples of 64 bytes, which XLA needs to use memory without a copy."""


def after(words: int) -> int:
    """Return the next place after that many words where an array may begin."""
    return words + -words % ALIGNED


class Stored(NamedTuple):
    """An array in the buffer, from a word of it on."""

    word: int
    shape: tuple[int, ...]
    dtype: str

    def words(self, buffer: Any) -> Any:
        return buffer[self.word : self.word + math.prod(self.shape)].reshape(self.shape)

    def cut(self, buffer: jax.Array) -> jax.Array:
        """Return the array, from a buffer on the device."""
        words: jax.Array = self.words(buffer)
        return words if self.dtype == "int32" else jax.lax.bitcast_convert_type(words, np.dtype(self.dtype))

    def view(self, buffer: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return the array, from a buffer on the host, without a copy."""
        view: npt.NDArray[Any] = self.words(buffer).view(self.dtype)
        return view


class Pattern(NamedTuple):
    """An array that every batch has alike: computed on the device, and not sent.

    >>> Pattern("offsets", 2, (1, 3)).values(np).tolist(), Pattern("bags", 2, (1, 3)).values(np).tolist()
    ([0, 1, 4, 5, 8], [0, 1, 1, 1, 2, 3, 3, 3])
    >>> Pattern("number", 3).values(np).tolist(), Pattern("one", 2).values(np).tolist()
    ([0, 1, 2], [1.0, 1.0])

    Attributes:
      kind: "bags" and "offsets" of `sparrow.kernels.Lookups` whose bags have fixed places; the "number" of each bag
        that holds one id, which is its entry's, too; or "one", its gain.
      examples: the examples of a batch; of the latter two, the length of the array.
      lengths: the places of each feature in an example.
      first: the number of the first bag and entry.
    """

    kind: Literal["bags", "offsets", "number", "one"]
    examples: int
    lengths: tuple[int, ...] = ()
    first: int = 0

    def values(self, numpy: Any) -> Any:
        """Return the array, made by NumPy or by ``jax.numpy``."""
        if self.kind == "one":
            return numpy.ones(self.examples, np.float32)
        if self.kind == "number":
            return numpy.arange(self.examples, dtype=np.int32)
        fields, places = len(self.lengths), sum(self.lengths)
        examples = numpy.arange(self.examples, dtype=np.int32)[:, None]
        if self.kind == "bags":
            own = np.repeat(np.arange(fields, dtype=np.int32), self.lengths) + np.int32(self.first)
            return (examples * np.int32(fields) + own).reshape(-1)
        begins = np.cumsum([self.first, *self.lengths[:-1]], dtype=np.int32)
        offsets = (examples * np.int32(places) + begins).reshape(-1)
        return numpy.concatenate([offsets, np.array([self.first + self.examples * places], np.int32)])

    def cut(self, buffer: jax.Array) -> jax.Array:
        return jnp.asarray(self.values(jnp))

    def view(self, buffer: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        return np.asarray(self.values(np))


class Joined(NamedTuple):
    """An array of two parts, of which the first is a pattern."""

    first: Pattern
    second: Stored | Pattern

    def cut(self, buffer: jax.Array) -> jax.Array:
        return jnp.concatenate([self.first.cut(buffer), self.second.cut(buffer)])

    def view(self, buffer: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        return np.concatenate([self.first.view(buffer), self.second.view(buffer)])


@dataclasses.dataclass(frozen=True)
class BatchLayout:
    """The arrays of a tree in a buffer; hashable. Leaves that are the same array are equal."""

    structure: Any
    leaves: tuple[Stored | Pattern | Joined, ...]

    def split(self, buffer: jax.Array) -> Any:
        return self.map(lambda leaf: leaf.cut(buffer))

    def views(self, buffer: npt.NDArray[np.int32]) -> Any:
        """Return the tree of a buffer on the host, without a copy where possible."""
        return self.map(lambda leaf: leaf.view(buffer))

    def map(self, cut: Callable[[Stored | Pattern | Joined], Any]) -> Any:
        """Return the tree with ``cut`` of each leaf; leaves that are equal are the same object."""
        made = {leaf: cut(leaf) for leaf in dict.fromkeys(self.leaves)}
        return jax.tree.unflatten(self.structure, [made[leaf] for leaf in self.leaves])


class Arrays:
    """The arrays of a buffer, one after the other, before there is one: their description as trees of stand-ins."""

    def __init__(self) -> None:
        self.words = 0
        self._held: dict[
            int, tuple[Any, Stored | Pattern | Joined]
        ] = {}  # by id, with the stand-in, which keeps its id

    def store(self, shape: tuple[int, ...], dtype: str) -> Stored:
        made = Stored(self.words, shape, dtype)
        self.words = after(self.words + math.prod(shape))
        return made

    def stand_in(self, held: Stored | Pattern | Joined) -> Any:
        """Return a leaf that stands for an array."""
        leaf = object()
        self._held[id(leaf)] = leaf, held
        return leaf

    def add(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a leaf that stands for the next array in the buffer."""
        return self.stand_in(self.store(shape, dtype))

    def of(self, leaf: Any) -> Any:
        return self._held[id(leaf)][1]

    def layout(self, tree: Any) -> BatchLayout:
        """Return the layout of a tree of such leaves."""
        leaves, structure = jax.tree.flatten(tree)
        return BatchLayout(structure, tuple(self.of(leaf) for leaf in leaves))


def joined(tree: Any) -> tuple[npt.NDArray[np.int32], BatchLayout]:
    """Return all arrays of a tree in one buffer, and its layout."""
    leaves, structure = jax.tree.flatten(tree)
    copied = {id(leaf): words(leaf) for leaf in leaves}
    arrays, places = Arrays(), {}
    for key, array in copied.items():
        places[key] = arrays.store(array.shape, array.dtype.name)
    buffer = pool.empty((arrays.words,), np.int32)
    for key, place in places.items():
        place.view(buffer)[...] = copied[key]
    return buffer, BatchLayout(structure, tuple(places[id(leaf)] for leaf in leaves))


def word_type(dtype: np.dtype[Any]) -> str:
    """Return the type of 32 bits that holds values of a type on the device."""
    return dtype.name if dtype.itemsize == 4 else "float32" if dtype.kind == "f" else "int32"


def words(leaf: Any) -> npt.NDArray[Any]:
    """Return the leaf as values of 32 bits."""
    array = np.asarray(leaf)
    return array.astype(word_type(array.dtype), copy=False)
