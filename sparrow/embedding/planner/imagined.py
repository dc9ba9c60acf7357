"""`imagined_mesh`: the routing of a mesh that is not there, to plan its traffic from real ids."""

from __future__ import annotations

import dataclasses
from typing import Any

from sparrow.embedding.embedder import Embedder
from sparrow.embedding.sharding.on_mesh import OnMesh
from sparrow.embedding.sharding.placement import Given, resolved, stacked


@dataclasses.dataclass(frozen=True)
class _Imagined:
    """As many shards as wanted, all in this process, without devices."""

    count: int
    processes: int = 1
    dtype: str = "float32"

    @property
    def local(self) -> tuple[int, ...]:
        return tuple(range(self.count))

    def put_parts(self, arrays: Any) -> Any:
        return arrays


def imagined_mesh(
    embedder: Embedder,
    devices: int,
    exchange: str = "auto",
    placement: Given = "rows",
    processes: int = 1,
    dtype: str = "float32",
) -> OnMesh:
    """Return the tables of an embedder as ``devices`` devices would hold them: for `measure`, `settle` and `traffic`.

    >>> import numpy as np, sparrow as sp
    >>> spec = sp.TableSpec(name="items", vocabulary_size=1000, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    >>> mesh = imagined_mesh(sp.Embedder([sp.FeatureSpec(name="item", table_spec=spec)]), 4)
    >>> batch = mesh.measure({"item": np.arange(64) % 7})
    >>> room = mesh.settle(batch.needs)
    >>> [traffic] = mesh.traffic(batch, room).values()
    >>> traffic.exchange, traffic.vectors.shape, int(traffic.vectors.sum())
    ('rows', (4, 4), 28)
    """
    shards: Any = _Imagined(devices, dtype=dtype)
    tables = list(embedder.tables.values())
    places = resolved(tables, placement, devices, processes)
    return OnMesh(embedder.features, stacked(tables, places), {}, shards, places, exchange)
