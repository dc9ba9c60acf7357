"""The inputs of a kernel: lookups, row gradients, and the static description of a stack's row step."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax

from sparrow.kernels.row import RowStep


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Lookups:
    """The ids of one stack for one batch, in bag order: the entries of bag 0, then of bag 1, and so on.

    An entry whose id is ``num_rows`` of the stack or more is padding, or an id to ignore: it reads zeros and writes
    nothing. Where every bag holds exactly one entry, ``bags`` and ``offsets`` are None: entry i is bag i.

    Attributes:
      ids: (N,) int32, the row in the stack.
      bags: (N,) int32, the bag of each entry; ``num_bags`` for padding.
      offsets: (num_bags + 1,) int32, where the entries of each bag begin and end.
      gains: (N,) float32, the factor of each row, or None where all are 1.
      num_bags: the number of bags; static.
      order: the entries sorted by row, in the backend's own format, where a lookup has made them; else None.
    """

    ids: jax.Array
    bags: jax.Array | None
    offsets: jax.Array | None
    gains: jax.Array | None
    num_bags: int = dataclasses.field(metadata={"static": True})
    order: jax.Array | None = None

    def with_order(self, order: jax.Array) -> Lookups:
        """Return these lookups with ``order``."""
        return dataclasses.replace(self, order=order)


class EntryGradients(NamedTuple):
    """The gradient of one stack's rows, not yet summed.

    Entry i adds ``gains[i] * bag_grads[bags[i]]`` to row ``ids[i]``, in float32. Fields as in `Lookups`; any order of
    entries.
    """

    ids: jax.Array  # (N,) int32
    bags: jax.Array | None  # (N,) int32; None: entry i is bag i
    gains: jax.Array | None  # (N,) float32; None: all 1
    bag_grads: jax.Array  # (num_bags, dim) float32, or bfloat16 or float16 as the model made them
    order: jax.Array | None = None  # as in `Lookups`: of these very ids, bags and gains


class StepScalars(NamedTuple):
    """The numbers of one optimizer step, one row per table of the stack.

    Stochastic rounding is keyed by the table's seed and the row's number in its logical table. That number is
    ``row - first_rows[table]``, unless ``logical_rows`` gives it: a stack whose rows are renumbered, such as a cache or
    a shard, passes it, so that every row gets the bits it would get in the complete table.
    """

    hyper: jax.Array  # (num_tables, num_scalars) float32, columns as in RowStep.scalars
    seeds: jax.Array  # (num_tables,) uint32, for stochastic rounding
    first_rows: jax.Array  # (num_tables,) int32, where each table begins in the stack
    logical_rows: jax.Array | None = None  # (num_rows,) int32, by row of the stack; None: row - first_rows[table]


__all__ = ["EntryGradients", "Lookups", "RowStep", "StepScalars"]
