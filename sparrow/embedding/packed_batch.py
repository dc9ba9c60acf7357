"""`PackedBatch`: a batch as the jitted methods take it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from sparrow.embedding.dynamic.assigning import Before
from sparrow.embedding.sequences import Jagged
from sparrow.embedding.sharding.shards import Shards
from sparrow.kernels import Lookups


class Group(NamedTuple):
    """Features of one stack with one batch size: bag ``b * len(features) + i`` is feature i of example b.

    Features of single ids have a group, and features of bags another one.
    """

    features: tuple[str, ...]
    num_bags: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class PackedBatch:
    """A batch as `Embedder.pack` makes it: a pytree of arrays whose shapes depend on the batch's sizes only.

    Attributes:
      lookups: by stack.
      groups: by stack.
      raw: (entries, 2) uint32, the raw ids of dynamic tables, lower and upper halves, by stack; `Embedder.assign` takes
        them. Until then, the stack's ``lookups.ids`` are the number of each entry's table in the stack, -1 for none.
      cached: the stacks in host memory whose ``lookups.ids`` are slots of the cache, as `Embedder.assign` gives them.
      undo: by stack of dynamic tables, what it was before `Embedder.assign`.
      offsets: by ordered feature, (batch + 1,) int32: where each sequence begins and ends among the rows.
      shards: the devices that the sequences of ordered features are split over; None: one device.
    """

    lookups: dict[str, Lookups]
    groups: tuple[tuple[str, tuple[Group, ...]], ...] = dataclasses.field(metadata={"static": True})
    raw: dict[str, Any] = dataclasses.field(default_factory=dict)
    offsets: dict[str, Any] = dataclasses.field(default_factory=dict)
    shards: Shards | None = dataclasses.field(metadata={"static": True}, default=None)
    cached: tuple[str, ...] = dataclasses.field(metadata={"static": True}, default=())
    undo: dict[str, Before] = dataclasses.field(default_factory=dict)

    def jagged(self, acts: Mapping[str, jax.Array]) -> dict[str, Jagged]:
        """Return the activations of the ordered features as sequences; `Jagged.pad` pads them."""
        return {name: Jagged(acts[name], offsets, self.shards) for name, offsets in self.offsets.items()}
