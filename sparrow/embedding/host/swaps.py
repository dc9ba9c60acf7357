"""`Swap`: the rows that come to the device before a step, and the ones that leave."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax

from sparrow.embedding.host.planner import Ids, Moves
from sparrow.embedding.host.rows import Array


class Counts(NamedTuple):
    """The work of a step on the caches.

    Attributes:
      lookups: entries of the batches.
      unique: distinct rows among them.
      coming, leaving: rows that are copied to the device, and from it.
      early: rows that left although the window needs them again.
      bytes_in, bytes_out: bytes of these rows with their slots.
      waited: seconds that gathering waited for rows on their way home.
      started: rows of ids that are new in the step and were not on the device: made there, and not copied.
    """

    lookups: int = 0
    unique: int = 0
    coming: int = 0
    leaving: int = 0
    early: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    waited: float = 0.0
    started: int = 0

    def __add__(self, other: Counts) -> Counts:  # type: ignore[override]
        return Counts(*(mine + others for mine, others in zip(self, other, strict=True)))  # type: ignore[arg-type]

    def __sub__(self, other: Counts) -> Counts:
        return Counts(*(mine - others for mine, others in zip(self, other, strict=True)))  # type: ignore[arg-type]

    @property
    def hits(self) -> float:
        """The share of lookups whose rows did not have to come."""
        return 1.0 - self.coming / self.lookups if self.lookups else 1.0


class Undo(NamedTuple):
    """Rows of a logical stack, and the values that they had in host memory before a step, by name."""

    rows: Ids
    values: dict[str, Array]


class StackMoves(NamedTuple):
    """The rows of one stack that come and leave before a step: on the host, and as the device takes them.

    Attributes:
      rows: all of them, on the host.
      in_slots, in_values: the slots and the values of the rows that are copied to the device.
      own_slots, own: the slots of all rows that come, and the rows' numbers in their own tables; None where rounding is
        not keyed by these.
      out_slots: the slots that rows leave; None: none does.
      undo: the rows that start on the device instead of being copied; None: none does, or nobody goes back.
    """

    rows: Moves
    in_slots: jax.Array
    in_values: dict[str, jax.Array]
    own_slots: jax.Array | None
    own: jax.Array | None
    out_slots: jax.Array | None
    undo: Undo | None


@dataclasses.dataclass(frozen=True)
class Swap:
    """Rows that come and leave before a step.

    Attributes:
      step: the number of the step, from 0 on.
      stacks: the moves, by stack; without the stacks that have none.
      counts: the work.
    """

    step: int
    stacks: dict[str, StackMoves]
    counts: Counts
