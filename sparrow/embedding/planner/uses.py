"""`imagined_mesh`: real ids routed on a mesh that is not there; `Use`: the lookups of one table, counted by it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.embedding.embedder import Embedder
from sparrow.embedding.sharding.measured import Routed, RoutedBatch
from sparrow.embedding.sharding.on_mesh import OnMesh
from sparrow.embedding.sharding.placement import Given, resolved, stacked
from sparrow.embedding.stacking import Stack

Numbers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class _Imagined:
    """As many shards as wanted, all in this process, without devices."""

    count: int
    processes = 1
    dtype = "float32"

    @property
    def local(self) -> tuple[int, ...]:
        return tuple(range(self.count))

    def put_parts(self, arrays: Any) -> Any:
        return arrays


def imagined_mesh(
    embedder: Embedder, devices: int, exchange: str = "auto", placement: Given = "rows", processes: int = 1
) -> OnMesh:
    """Return the tables of an embedder as ``devices`` devices would hold them: for `measure`, `settle` and `traffic`.

    >>> import numpy as np, sparrow as sp
    >>> spec = sp.TableSpec(name="items", vocabulary_size=1000, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    >>> mesh = imagined_mesh(sp.Embedder([sp.FeatureSpec(name="item", table_spec=spec)]), 4)
    >>> batch = mesh.measure({"item": np.arange(64) % 7})
    >>> [traffic] = mesh.traffic(batch, mesh.settle(batch.needs)).values()
    >>> traffic.exchange, traffic.vectors.shape, int(traffic.vectors.sum())
    ('rows', (4, 4), 28)
    """
    shards: Any = _Imagined(devices)
    tables = list(embedder.tables.values())
    places = resolved(tables, placement, devices, processes)
    return OnMesh(embedder.features, stacked(tables, places), {}, shards, places, exchange)


@dataclasses.dataclass(frozen=True)
class Use:
    """The part of one device; means over the devices where they differ.

    Attributes:
      bags: bags, empty ones included.
      lengths: by number of ids, the bags that hold that number.
      distinct: different rows.
      hottest: bags with the row that has the most lookups, and these lookups.
      weighted: whether lookups have gains.
      squares: sums over the rows of the squares of their lookups in the batch, and of the devices that look them up.
    """

    bags: int
    lengths: tuple[float, ...]
    distinct: float
    hottest: tuple[float, float]
    weighted: bool
    squares: tuple[float, float] = (0.0, 0.0)

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
    of_device = numbers // max(parts[0].num_bags, 1)
    firsts = np.array([stack.rows_of(table.name).start for table in stack.tables])
    held = np.bincount(numbers, minlength=1)  # ids of each bag
    table_of_bag = np.full(len(held), -1)
    table_of_bag[numbers] = np.searchsorted(firsts, ids, side="right") - 1
    pairs = np.sort(ids * devices + of_device)  # by table, by row, by device
    made = {}
    for number, table in enumerate(stack.tables):
        span = stack.rows_of(table.name)
        own = pairs[slice(*np.searchsorted(pairs, (span.start * devices, span.stop * devices)))]
        rows, counts = _runs(own // devices)
        of_rows = _runs(_runs(own)[0] // devices)[1]  # devices that look each row up
        hottest = (0.0, 0.0)
        if len(own):
            bags_of_it = np.unique(numbers[ids == rows[counts.argmax()]])
            hottest = len(bags_of_it) / devices, int(counts.max()) / devices
        count = sum(group.num_bags for group in groups for name in group.features if table_of[name] == table.name)
        weighted = gains is not None and bool((gains[(ids >= span.start) & (ids < span.stop)] != 1.0).any())
        lengths = tuple((np.bincount(held[table_of_bag == number], minlength=1) / devices).tolist())
        squares = float(np.square(counts, dtype=np.float64).sum()), float(np.square(of_rows, dtype=np.float64).sum())
        made[table.name] = Use(count, lengths, float(of_rows.sum()) / devices, hottest, weighted, squares)
    return made


def _runs(ordered: Any) -> tuple[Any, Any]:
    """Return the different numbers of an ordered array, and how often each is in it."""
    begins = np.flatnonzero(np.diff(ordered, prepend=-1))
    return ordered[begins], np.diff(begins, append=len(ordered))
