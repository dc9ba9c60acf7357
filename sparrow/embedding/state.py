"""`EmbeddingState`: everything that an update changes, as one pytree."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from sparrow.embedding.cached import Cached
from sparrow.kernels.ids import IdState


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class EmbeddingState:
    """All tables and slots, by stack, and the optimizer step. A pytree; `Embedder.table` gives logical views.

    Attributes:
      step: () int32, the number of updates.
      seed: () uint32, of stochastic rounding.
      tables: (rows, dim) by stack; on a mesh, the rows of each shard one after the other. Of a stack in host memory,
        the rows of its cache.
      slots: (rows,) or (rows, dim) float32, by stack and slot name.
      table_rows: (rows,) int32 by stack, the number of each row in its own table, for stacks that round stochastically
        and hold their rows in another order, as on a mesh.
      ids: the map from raw ids to rows, by stack of dynamic tables.
      caches: the cache, by stack of tables in host memory apart from the device's.
      touched: (rows,) uint8 by stack: the rows that changed (`sparrow.embedding.tracking`); empty: not tracked.
      layout: on a mesh, the places of tables, as text in bytes, under a name with the number of its shards and a hash
        of them, on which the order of rows depends: Orbax compares names, and so refuses to restore rows in the order
        of other meshes.
    """

    step: jax.Array
    seed: jax.Array
    tables: dict[str, jax.Array]
    slots: dict[str, dict[str, jax.Array]]
    table_rows: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    ids: dict[str, IdState] = dataclasses.field(default_factory=dict)
    caches: dict[str, Cached] = dataclasses.field(default_factory=dict)
    touched: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    layout: dict[str, jax.Array] = dataclasses.field(default_factory=dict)


def state_layout(devices: int, places: str) -> dict[str, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Return `EmbeddingState.layout` for rows over ``devices``, in ``places``.

    Its name is shown where a restore fails.

    >>> devices_of(state_layout(4, "{}"))
    4
    """
    order = "" if places == "{}" else f" in places {zlib.crc32(places.encode()):08x}"
    name = f"over {devices} devices{order}, for others use sparrow checkpoint restore_orbax"
    return {name: np.frombuffer(places.encode(), np.uint8)}


def devices_of(names: Iterable[str]) -> int:
    """Return the number of devices that a name in `state_layout` has; 1 where there is none."""
    found = [int(match[1]) for name in names if (match := re.match(r"over (\d+) devices", name))]
    return found[0] if found else 1


def check_state(state: Any, layout: Mapping[str, Any]) -> None:
    """Raise an error unless this is an `EmbeddingState` whose rows are in the order of ``layout``."""
    if not hasattr(state, "tables"):
        kind = type(state).__name__
        raise TypeError(f"the state must be what emb.init made, got {kind}; an Optimizer keeps it as state.embedding")
    if state.layout.keys() != layout.keys():
        found, devices = devices_of(state.layout), devices_of(layout)
        other = f"{found} devices, this Embedder has {devices}" if found != devices else "other places than here"
        raise ValueError(
            f"the rows of this state are in the order of {other}; restore its checkpoint with "
            "sparrow.checkpoint.restore_orbax"
        )
