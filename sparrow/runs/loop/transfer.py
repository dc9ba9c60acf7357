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

from sparrow.kernels import feed

ALIGNED: Final = 16
"""Words: arrays begin at multiples of 64 bytes, which XLA needs to use memory without a copy."""


def after(words: int) -> int:
    """Return the next place after that many words where an array may begin."""
    return words + -words % ALIGNED


class Place(NamedTuple):
    """The place of an array in the buffer."""

    word: int
    shape: tuple[int, ...]
    dtype: str

    def words(self, buffer: Any) -> Any:
        """Return its words."""
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
        """Return the array on the device."""
        made: jax.Array = self.values(jnp)
        return made

    def view(self, buffer: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return the array on the host."""
        made: npt.NDArray[Any] = self.values(np)
        return made


class Joined(NamedTuple):
    """An array of two parts, of which the first is a pattern."""

    first: Pattern
    second: Place | Pattern

    def cut(self, buffer: jax.Array) -> jax.Array:
        """Return the array on the device."""
        return jnp.concatenate([self.first.cut(buffer), self.second.cut(buffer)])

    def view(self, buffer: npt.NDArray[np.int32]) -> npt.NDArray[Any]:
        """Return a copy of the array on the host."""
        return np.concatenate([self.first.view(buffer), self.second.view(buffer)])


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of the arrays of a tree in a buffer; hashable.

    Attributes:
      structure: the structure of the tree.
      places: the places of its leaves; leaves that are the same array have the same place.
    """

    structure: Any
    places: tuple[Place | Pattern | Joined, ...]

    def split(self, buffer: jax.Array) -> Any:
        """Return the tree of a buffer on the device."""
        return self._split(lambda place: place.cut(buffer))

    def views(self, buffer: npt.NDArray[np.int32]) -> Any:
        """Return the tree of a buffer on the host, without a copy."""
        return self._split(lambda place: place.view(buffer))

    def _split(self, cut: Callable[[Place | Pattern | Joined], Any]) -> Any:
        made = {place: cut(place) for place in dict.fromkeys(self.places)}
        return jax.tree.unflatten(self.structure, [made[place] for place in self.places])


class Arena:
    """Memory for the arrays of one batch. Arrays that it made are in the buffer already, others are copied into it."""

    def __init__(self, words: int) -> None:
        self.buffer: npt.NDArray[np.int32] = feed.pool.empty((words,), np.int32)
        self._used = 0
        self._made: dict[int, tuple[Any, int]] = {}  # by id: the array, which stays alive, and its place

    def empty(self, size: int, dtype: Any) -> npt.NDArray[Any]:
        """Return a flat array with any content, in the buffer where it has room."""
        begin, end = self._used, self._used + size
        if end > len(self.buffer):
            return np.empty(size, dtype)
        made: npt.NDArray[Any] = self.buffer[begin:end].view(dtype)
        self._made[id(made)] = made, begin
        self._used = after(end)
        return made

    def join(self, tree: Any) -> tuple[npt.NDArray[np.int32], Layout]:
        """Return all arrays of the tree in one buffer, and its layout."""
        leaves, structure = jax.tree.flatten(tree)
        unique = {id(leaf): leaf for leaf in leaves}
        copied = {key: words(leaf) for key, leaf in unique.items() if key not in self._made}
        needed = self._used + sum(after(array.size) for array in copied.values())
        buffer = self.buffer
        if needed > len(buffer):
            buffer = feed.pool.empty((needed,), np.int32)
            buffer[: self._used] = self.buffer[: self._used]
        places, at = {}, self._used
        for key, leaf in unique.items():
            if key in self._made:
                places[key] = Place(self._made[key][1], leaf.shape, leaf.dtype.name)
                continue
            array = copied[key]
            buffer[at : at + array.size].reshape(array.shape)[...] = array.view(np.int32)
            places[key] = Place(at, array.shape, array.dtype.name)
            at = after(at + array.size)
        self.buffer = buffer
        return buffer[:at], Layout(structure, tuple(places[id(leaf)] for leaf in leaves))


def words(leaf: Any) -> npt.NDArray[Any]:
    """Return the leaf as values of 32 bits."""
    array = np.asarray(leaf)
    if array.dtype.itemsize == 4:
        return array
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
