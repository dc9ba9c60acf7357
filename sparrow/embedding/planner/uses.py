"""`Use`: the lookups of one table by one device in one batch, counted on real ids."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding.embedder import Embedder
from sparrow.embedding.planner.imagined import imagined_mesh
from sparrow.embedding.sharding.measured import Routed, RoutedBatch
from sparrow.embedding.stacking import Stack

Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class Use:
    """The part of one device; means over the devices where they differ.

    Attributes:
      bags: bags, empty ones included.
      lengths: by number of ids, the bags that hold as many.
      distinct: different rows.
      hottest: bags with the row that has the most lookups, and these lookups.
      weighted: whether lookups have gains.
    """

    bags: int
    lengths: tuple[float, ...]
    distinct: float
    hottest: tuple[float, float]
    weighted: bool

    @functools.cached_property
    def entries(self) -> float:
        """Lookups."""
        return float(np.dot(np.arange(len(self.lengths)), self.lengths))

    @functools.cached_property
    def ragged(self) -> bool:
        """Whether a bag holds another number of ids than one."""
        return any(self.lengths[2:]) or sum(self.lengths[1:2]) < self.bags

    def sums(self, over: int) -> float:
        """Return the bags with rows of an owner, added up over ``over`` owners.

        >>> use = Use(bags=10, lengths=(0, 0, 10), distinct=20, hottest=(1, 1), weighted=False)
        >>> use.sums(1), use.sums(2)
        (10.0, 15.0)
        """
        ids = np.arange(len(self.lengths))
        return float(over * np.dot(1.0 - (1.0 - 1.0 / over) ** ids, self.lengths))


def uses(embedder: Embedder, inputs: Mapping[str, Any], devices: int) -> dict[str, Use]:
    """Return the use of each table that is not dynamic, where ``devices`` devices share a batch evenly."""
    mesh = imagined_mesh(embedder, devices, "pooled")
    batch = mesh.measure(inputs)
    made: dict[str, Use] = {}
    for stack in mesh.stacks:
        if not stack.is_dynamic:
            made |= _of_stack(embedder, stack, batch, batch.routed[stack.name], devices)
    return made


def _of_stack(embedder: Embedder, stack: Stack, batch: RoutedBatch, routed: Routed, devices: int) -> dict[str, Use]:
    parts = routed.parts
    bags: list[Numbers] = []
    for number, part in enumerate(parts):
        own = np.arange(len(part.ids)) if part.bags is None else part.bags
        bags.append(own.astype(np.int64) + number * part.num_bags)
    ids, numbers = np.concatenate([part.ids for part in parts]).astype(np.int64), np.concatenate(bags)
    gains = None if parts[0].gains is None else np.concatenate([part.gains for part in parts])
    table_of = {feature.name: feature.table_spec.name for feature in embedder.features}
    groups = dict(batch.groups)[stack.name]
    made = {}
    for table in stack.tables:
        span = stack.rows_of(table.name)
        here = (ids >= span.start) & (ids < span.stop)
        own, of_bag = ids[here], numbers[here]
        lengths = np.bincount(np.unique(of_bag, return_counts=True)[1]) if len(own) else np.zeros(1)
        device = of_bag // max(parts[0].num_bags, 1)
        distinct = len(np.unique(device * stack.num_rows + own))
        rows, counts = np.unique(own, return_counts=True)
        hottest = (0.0, 0.0)
        if len(own):
            bags_of_it = np.unique(of_bag[own == rows[counts.argmax()]])
            hottest = len(bags_of_it) / devices, int(counts.max()) / devices
        count = sum(group.num_bags for group in groups for name in group.features if table_of[name] == table.name)
        weighted = gains is not None and bool((gains[here] != 1.0).any())
        held = tuple((lengths / devices).tolist())
        made[table.name] = Use(count, held, distinct / devices, hottest, weighted)
    return made
