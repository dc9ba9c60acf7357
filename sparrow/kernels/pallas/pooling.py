"""The pooled lookup: each program sums the rows of a few bags in registers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

from sparrow.kernels import xla
from sparrow.kernels.pallas.blocks import Entries, Place, Tile, call, gather, struct
from sparrow.kernels.types import Lookups


def lookup(table: jax.Array, lookups: Lookups, tile: Tile) -> jax.Array:
    """(num_bags, dim) float32: each bag's rows, times their gains, summed."""
    if lookups.bags is None or lookups.offsets is None:
        return xla.lookup(table, lookups)  # one row per bag is a plain gather, which XLA does at full bandwidth
    dim = table.shape[1]
    if lookups.num_bags == 0 or lookups.ids.shape[0] == 0:
        return jnp.zeros((lookups.num_bags, dim), jnp.float32)
    gains = () if lookups.gains is None else (lookups.gains,)

    def kernel(offsets_ref: Any, ids_ref: Any, table_ref: Any, *refs: Any) -> None:
        gains_ref = refs[0] if gains else None
        out_ref = refs[-1]
        bag = pl.program_id(0) * tile.rows + tile.lanes()
        valid = bag < lookups.num_bags
        start = gather(offsets_ref, bag, valid, 0)
        stop = gather(offsets_ref, bag + 1, valid, 0)

        def locate(position: jax.Array, mask: jax.Array) -> Place:
            gain = None if gains_ref is None else gather(gains_ref, position, mask, 0)
            return Place(gather(ids_ref, position, mask, -1), gain)

        length, entries = stop - start, Entries(table_ref, locate)
        total = tile.ragged_sum(start, length, entries, tile.locate(start, length, entries, 0))
        tile.store(out_ref, bag, valid, total)

    output = struct((lookups.num_bags, dim), jnp.float32)
    inputs = (lookups.offsets, lookups.ids, table, *gains)
    (pooled,) = call(kernel, -(-lookups.num_bags // tile.rows), inputs, (output,), tile.warps)
    return pooled
