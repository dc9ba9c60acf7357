"""A batch as one array: one transfer moves all inputs of a step to the device.

Every array of a batch has values of 32 bits. They lie one after the other in one buffer of words, and the jitted
functions cut it apart again, at no cost: the places are part of the program.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

ALIGNED: Final = 16
"""Words: arrays begin at multiples of 64 bytes, which XLA needs to use memory without a copy."""


class Place(NamedTuple):
    """The place of an array in the buffer."""

    word: int
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class Layout:
    """The places of the arrays of a tree in a buffer; hashable.

    Attributes:
      structure: the structure of the tree.
      places: the places of its leaves; leaves that are the same array have the same place.
    """

    structure: Any
    places: tuple[Place, ...]

    def split(self, buffer: jax.Array) -> Any:
        """Return the tree."""
        made = {place: _cut(buffer, place) for place in dict.fromkeys(self.places)}
        return jax.tree.unflatten(self.structure, [made[place] for place in self.places])


def _cut(buffer: jax.Array, place: Place) -> jax.Array:
    size = int(np.prod(place.shape))
    words = buffer[place.word : place.word + size].reshape(place.shape)
    return words if place.dtype == "int32" else jax.lax.bitcast_convert_type(words, np.dtype(place.dtype))


class Arena:
    """Memory for the arrays of one batch. Arrays that it made are in the buffer already, others are copied into it."""

    def __init__(self, words: int) -> None:
        self.buffer = aligned(words)
        self._used = 0
        self._made: dict[int, tuple[Any, int]] = {}  # by id: the array, which stays alive, and its place

    def empty(self, size: int, dtype: Any) -> npt.NDArray[Any]:
        """Return a flat array with any content, in the buffer where it has room."""
        begin, end = self._used, self._used + size
        if end > len(self.buffer):
            return np.empty(size, dtype)
        made: npt.NDArray[Any] = self.buffer[begin:end].view(dtype)
        self._made[id(made)] = made, begin
        self._used = end + -end % ALIGNED
        return made

    def join(self, tree: Any) -> tuple[npt.NDArray[np.int32], Layout]:
        """Return all arrays of the tree in one buffer, and its layout."""
        leaves, structure = jax.tree.flatten(tree)
        unique = {id(leaf): leaf for leaf in leaves}
        copied = {key: words(leaf) for key, leaf in unique.items() if key not in self._made}
        needed = self._used + sum(array.size + -array.size % ALIGNED for array in copied.values())
        buffer = self.buffer
        if needed > len(buffer):
            buffer = aligned(needed)
            buffer[: self._used] = self.buffer[: self._used]
        places, at = {}, self._used
        for key, leaf in unique.items():
            if key in self._made:
                places[key] = Place(self._made[key][1], leaf.shape, leaf.dtype.name)
                continue
            array = copied[key]
            buffer[at : at + array.size].reshape(array.shape)[...] = array.view(np.int32)
            places[key] = Place(at, array.shape, array.dtype.name)
            at += array.size + -array.size % ALIGNED
        self.buffer = buffer
        return buffer[:at], Layout(structure, tuple(places[id(leaf)] for leaf in leaves))


def aligned(words: int) -> npt.NDArray[np.int32]:
    """Return a buffer of words that begins at a multiple of 64 bytes."""
    memory = np.empty(words + ALIGNED, np.int32)
    skip = -(memory.__array_interface__["data"][0] // 4) % ALIGNED
    return memory[skip : skip + words]


def words(leaf: Any) -> npt.NDArray[Any]:
    """Return the leaf as values of 32 bits."""
    array = np.asarray(leaf)
    if array.dtype.itemsize == 4:
        return array
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)


class Buffers:
    """Arenas that are reused once their content is on the device; not on a CPU, which uses the memory itself."""

    def __init__(self) -> None:
        self._sent: deque[tuple[Any, npt.NDArray[np.int32]]] = deque(maxlen=32)
        self._words = 0
        self._again = jax.default_backend() != "cpu"

    def arena(self) -> Arena:
        """Return memory for one batch, as large as the largest so far needed."""
        made = Arena(0)
        try:
            on_device, memory = self._sent.popleft()
        except IndexError:
            made.buffer = aligned(self._words)
            return made
        if len(memory) < self._words or not on_device.is_ready():
            if len(memory) >= self._words:
                self._sent.append((on_device, memory))
            memory = aligned(self._words)
        made.buffer = memory
        return made

    def send(self, arena: Arena, tree: Any) -> tuple[jax.Array, Layout]:
        """Start the copy of the arrays to the device, and return them with their layout."""
        words, layout = arena.join(tree)
        return self.put(arena.buffer, len(words)), layout

    def put(self, buffer: npt.NDArray[np.int32], words: int) -> jax.Array:
        """Start the copy of the first words of a buffer to the device, and return them."""
        on_device: jax.Array = jax.device_put(buffer[:words])
        self._words = max(self._words, words)
        if self._again:
            self._sent.append((on_device, buffer))
        return on_device
