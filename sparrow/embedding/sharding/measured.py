"""`RoutedBatch`: a batch that is routed but not laid out. Its needs are known, and processes can agree on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.embedding.batches.packing import Measured, size_name
from sparrow.embedding.batches.sizes import KINDS
from sparrow.embedding.packed_batch import Group, PackedBatch
from sparrow.embedding.sharding.exchange import Exchange
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.sharding.parts import Elements, Part, Raw, pieces, stand_in_layout, with_words
from sparrow.embedding.sharding.routing import (
    PooledRoute,
    RowsRoute,
    lay_out_copies,
    lay_out_pooled,
    lay_out_rows,
    route_pooled,
    route_rows,
)

if TYPE_CHECKING:
    from sparrow.embedding.sharding.on_mesh import OnMesh

POOLED: Final = "pooled"
ROWS: Final = "rows"
COPIES: Final = "copies"
SUMS, ENTRIES, DISTINCT, IDS, WEIGHTED = KINDS
"""The needs of a stack, each the most of any pair of shards or any shard.

sums, entries: the numbers of a pair, in the pooled exchange; entries are 0 where every bag holds one.
rows, ids: distinct rows of a pair and entries of a shard in the rows exchange; ids are 0 where every bag holds one.
  Copies have ids alone.
weighted: 1 where there are gains.
"""
ROWS_BELOW: Final = 0.7
"""Rows travel where there are fewer than this many for each sum of a bag that would."""


@dataclasses.dataclass(frozen=True)
class Routed:
    """The entries of one stack, by shard of this process, and their targets; None: not requested."""

    parts: list[Part]
    pooled: list[PooledRoute] | None
    rows: list[RowsRoute] | None
    raw: list[Raw] | None = None  # the raw ids of each shard of this process, where parts hold stand-ins
    most: int | None = None  # bags of a shard whose rows, or pieces of them, one owner has; None: all

    @property
    def needs(self) -> list[int]:
        """In the order of `KINDS`."""
        ragged = self.parts[0].bags is not None
        weighted = int(self.parts[0].gains is not None)
        sums = entries = distinct = ids = 0
        if self.pooled is not None:
            sums = max(1, *(int(route.sums.max()) for route in self.pooled), 0)
            entries = max(1, *(int(route.entries.max()) for route in self.pooled), 0) if ragged else 0
        if self.rows is not None:
            distinct = max(1, *(int(route.rows.max()) for route in self.rows), 0)
        if self.pooled is None or self.rows is not None:
            ids = max(1, *(len(part.ids) for part in self.parts), 0) if ragged else 0
        return [sums, entries, distinct, ids, weighted]

    def size(self, name: str, capacity: Mapping[str, int]) -> dict[str, int]:
        """Return the capacity of the stack ``name`` by `KINDS`.

        A bag has at most one sum at each owner: capacity for more sums than an owner has bags is not sent.
        """
        size = {kind: capacity.get(f"{name}/{kind}", 0) for kind in KINDS}
        return size | {SUMS: min(size[SUMS], max(self.most or self.parts[0].num_bags, 1))}

    def lay_out(self, name: str, layout: Layout, size: Mapping[str, int]) -> Exchange:
        """Return the lookups of this process's shards, on the host, with the capacity that `size` gives."""
        weighted = size[WEIGHTED] > 0
        if self.raw is not None:
            layout = stand_in_layout(layout.shards)
        if layout.copies:
            return lay_out_copies(layout, self.parts, size[IDS], weighted)
        if size[SUMS] and self.pooled is not None:
            return lay_out_pooled(layout, self.parts, self.pooled, size[ENTRIES], size[SUMS], weighted)
        if size[DISTINCT] and self.rows is not None:
            return lay_out_rows(layout, self.parts, self.rows, size[IDS], size[DISTINCT], weighted)
        raise ValueError(f"no capacity was given for the ids of stack '{name}'; it needs {self.needs}")


def route(layout: Layout, parts: list[Part], choice: str | None) -> Routed:
    """Route the entries for the exchange ``choice``; None: for both, to compare them."""
    return Routed(
        [pieces(part, layout.columns) for part in parts],
        None if choice in (ROWS, COPIES) else [route_pooled(layout, part) for part in parts],
        None if choice in (POOLED, COPIES) else [route_rows(layout, part) for part in parts],
    )


def chosen(needs: Mapping[str, int]) -> str:
    """Return the exchange with less traffic, from the needs of a stack that was routed for both."""
    return ROWS if needs[DISTINCT] < ROWS_BELOW * needs[SUMS] else POOLED


@dataclasses.dataclass(frozen=True)
class RoutedBatch:
    """The first half of `Embedder.pack` on a mesh: a batch of this process. Nothing here waits for another process.

    Attributes:
      elements: of the ordered features.
      sizes: the elements of each ordered feature in every part, for which the batch was routed.
      routed: by stack.
      groups: as `PackedBatch` has them, for each shard.
      capacity: by stack, the most ids that one shard can have.
    """

    mesh: OnMesh
    counted: Measured
    elements: Mapping[str, Elements]
    sizes: Mapping[str, int]
    routed: Mapping[str, Routed]
    groups: tuple[tuple[str, tuple[Group, ...]], ...]
    capacity: Mapping[str, int]

    @property
    def needs(self) -> npt.NDArray[np.int32]:
        """Capacity that this process's part of the batch needs: int32, for each stack in the order of `KINDS`.

        Then the elements of each ordered feature; 0 where their number is fixed. Processes agree on the largest of each
        number.
        """
        of_stacks = [need for name, _ in self.groups for need in self.routed[name].needs]
        elements = [held.most if held.size is None else 0 for held in self.elements.values()]
        return np.array([*of_stacks, *elements], np.int32)

    @property
    def loose(self) -> dict[str, int]:
        """The needs by name, as `Sizes.fit` takes them: for a mesh that belongs to this process alone."""
        return self.mesh.settle(self.needs)

    def pack(self, capacity: Mapping[str, int]) -> PackedBatch:
        """Lay the batch out and copy it to the devices. ``capacity`` by the names of `loose`, as agreed by all."""
        sizes = {name: capacity.get(size_name(name), size) for name, size in self.sizes.items()}
        if sizes != self.sizes:
            return self.mesh.routed(self.counted, self.elements, sizes).pack(capacity)
        made: dict[Any, Any] = {}  # stacks that are read with the same ids in the same way share their arrays
        words: dict[str, Any] = {}
        key = {}
        for name, routed in self.routed.items():
            size = routed.size(name, capacity)
            alike = key[name] = (id(routed), *size.values())
            if alike not in made:
                made[alike] = routed.lay_out(name, self.mesh.layouts[name], size)
                if routed.raw is not None:
                    made[alike], words[name] = with_words(made[alike], routed.raw)
        # All arrays in one call: a call for each would take longer than the copies.
        ends, shards = {name: held.offsets for name, held in self.elements.items()}, self.mesh.shards
        arrays, offsets, raw = shards.put_parts((list(made.values()), ends, words))
        on_mesh = dict(zip(made, arrays, strict=True))
        lookups = {name: on_mesh[key[name]] for name in self.routed}
        return PackedBatch(lookups, self.groups, raw, offsets, shards=shards if offsets else None)
