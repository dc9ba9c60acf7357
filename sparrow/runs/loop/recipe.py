"""`Recipe`: from the rows of a batch to its buffer in a few calls, where each example holds one id of each feature.

Such batches depend on nothing but their own rows, and the places of everything in rows and buffer are known: what is
left to do for each batch is to copy.
"""

from __future__ import annotations

import ctypes
import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import numpy.typing as npt

from sparrow.data import Block, Name
from sparrow.embedding import Group, PackedBatch
from sparrow.kernels import Lookups, feed
from sparrow.runs.loop.transfer import ALIGNED, Layout, Place

if TYPE_CHECKING:
    from sparrow.runs.loop.feed import Preparer


@dataclasses.dataclass(frozen=True)
class Packing:
    """Ids of one stack: the features as compiled code takes them, the row that is none, and where they go."""

    given: npt.NDArray[np.int64]
    features: int
    spare: int
    word: int


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What to copy where, for batches of one size.

    Attributes:
      rows: examples in a batch.
      packings: of ids.
      copies: of other columns: first word in a row, number of words, and first word in the buffer.
      words: in the buffer.
      layout: of the buffer.
    """

    rows: int
    packings: list[Packing]
    copies: list[tuple[int, int, int]]
    words: int
    layout: Layout

    def fill(self, rows: Block, buffer: npt.NDArray[np.int32]) -> bool:
        """Write a batch to the buffer; False: an id is outside its table."""
        library = feed.library()
        assert library is not None  # or there would be no recipe
        words = rows.words
        source, target = (array.__array_interface__["data"][0] for array in (words, buffer))
        for packing in self.packings:
            done = library.sparrow_feed_pack_rows(
                ctypes.c_void_p(packing.given.__array_interface__["data"][0]),
                ctypes.c_int64(packing.features),
                ctypes.c_int64(self.rows),
                ctypes.c_int64(packing.spare),
                ctypes.c_void_p(source),
                ctypes.c_void_p(target + 4 * packing.word),
            )
            if not done:
                return False
        for word, width, to in self.copies:
            buffer[to : to + self.rows * width].reshape(self.rows, width)[...] = words[:, word : word + width]
        return True


def recipe(preparer: Preparer, rows: Block) -> Recipe | None:
    """Return the recipe of batches such as this one; None: there is none for them."""
    embedder, ids_of, places = preparer.embedder, preparer.ids_of, rows.layout.places
    if feed.library() is None or rows.others or any(place.dtype.itemsize != 4 for place in places.values()):
        return None
    if embedder.shards is not None or any(table.dynamic is not None for table in embedder.tables.values()):
        return None
    if any(f.is_ordered or f.invalid_ids == "hash" or ("ids", ids_of[f.name]) not in places for f in embedder.features):
        return None
    size, width, at = len(rows), rows.layout.width, 0
    made: dict[Any, tuple[Packing, Any]] = {}
    lookups, groups, where = {}, [], {}
    for stack in embedder.logical_stacks:
        tables = {table.name for table in stack.tables}
        members = [feature for feature in embedder.features if feature.table_spec.name in tables]
        fields = [
            (
                *(4 * places["ids", ids_of[m.name]].word, 0, width, 0, 0, stack.rows_of(m.table_spec.name).start),
                *(m.table_spec.vocabulary_size, m.invalid_ids == "ignore", 0),
            )
            for m in members
        ]
        alike = (stack.name if stack.in_host else stack.num_rows, *fields)
        if alike not in made:
            leaf = jax.ShapeDtypeStruct((size * len(members),), np.int32)  # type: ignore[no-untyped-call]
            made[alike] = Packing(np.array(fields, np.int64), len(members), stack.num_rows, at), leaf
            where[id(leaf)] = Place(at, leaf.shape, "int32")
            at += size * len(members) + -(size * len(members)) % ALIGNED
        leaf = made[alike][1]
        lookups[stack.name] = Lookups(leaf, None, None, None, size * len(members))
        groups.append((stack.name, (Group(tuple(m.name for m in members), size),)))
    others: dict[Name, Any] = {}
    copies = []
    for name, place in places.items():
        if name[0] not in ("numbers", "weights", "labels"):
            continue
        shape = (size,) if place.width is None else (size, place.width)
        others[name] = leaf = jax.ShapeDtypeStruct(shape, place.dtype)  # type: ignore[no-untyped-call]
        where[id(leaf)] = Place(at, shape, place.dtype.name)
        copies.append((place.word, place.width or 1, at))
        at += int(np.prod(shape)) + -int(np.prod(shape)) % ALIGNED
    numbers = {name: leaf for (part, name), leaf in others.items() if part == "numbers"}
    columns = {name: leaf for (part, name), leaf in others.items() if part == "weights"}
    columns |= {name: leaf for (part, name), leaf in others.items() if part == "labels"}
    tree = preparer.parts(PackedBatch(lookups, tuple(groups)), numbers, columns)
    leaves, structure = jax.tree.flatten(tree)
    layout = Layout(structure, tuple(where[id(leaf)] for leaf in leaves))
    return Recipe(size, [packing for packing, _ in made.values()], copies, at, layout)
