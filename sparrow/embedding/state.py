"""`EmbeddingState`: everything that an update changes, as one pytree."""

from __future__ import annotations

import dataclasses

import jax

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
      table_rows: (rows,) int32 by stack, the number of each row in its own table: for stacks on a mesh that round
        stochastically.
      ids: the map from raw ids to rows, by stack of dynamic tables.
      caches: the cache, by stack of tables in host memory apart from the device's.
      touched: (rows,) uint8 by stack: the rows that changed (`sparrow.embedding.tracking`); empty: not tracked.
    """

    step: jax.Array
    seed: jax.Array
    tables: dict[str, jax.Array]
    slots: dict[str, dict[str, jax.Array]]
    table_rows: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
    ids: dict[str, IdState] = dataclasses.field(default_factory=dict)
    caches: dict[str, Cached] = dataclasses.field(default_factory=dict)
    touched: dict[str, jax.Array] = dataclasses.field(default_factory=dict)
