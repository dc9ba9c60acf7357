"""`Dynamic`: admission of ids to the rows of a table, and eviction."""

from __future__ import annotations

import dataclasses
import numbers
from typing import Final, Literal

from sparrow import fields
from sparrow.registry import answering

EVICT: Final = ("lru", "lfu", "distance_lfu", "none")
UNKNOWN: Final = ("row", "zeros")
MAX_STEPS: Final = 2**31 - 1


@answering
@dataclasses.dataclass(frozen=True, kw_only=True)
class Dynamic:
    """A vocabulary that grows and forgets: raw 64-bit ids get the rows of a table while they are in use.

    >>> Dynamic(admit=2, evict="lru").unknown
    'row'

    Attributes:
      admit: the condition for a row: an integer is the number of times that an id must have been seen; a number
        between 0 and 1 is its chance in each step.
      evict: the id whose row a new id gets when all are taken. "lru": the one that was not used for longest; "lfu": the
        one that was looked up least, by exact counts since it got its row; "distance_lfu": the one with the smallest
        count divided by one more than the steps since its last use. Ids of the step are spared, and at least 1 % of the
        rows are freed at once. "none": the new id stays unknown.
      expire_steps: steps without use after which an id loses its row; None: it never does. An id that comes back
        starts fresh.
      unknown: the values of ids without a row: "row" (all of them share row 0, which is trained) or "zeros".
      waiting: the most ids that are counted while they wait for a row, the oldest are forgotten first; None: as many
        as the table has rows.
    """

    admit: int | float = 1
    evict: Literal["lru", "lfu", "distance_lfu", "none"] = "lru"
    expire_steps: int | None = None
    unknown: Literal["row", "zeros"] = "row"
    waiting: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.admit, bool) or not isinstance(self.admit, numbers.Real) or not self.admit > 0:
            raise ValueError(f"dynamic: admit must be a count from 1 on, or a chance below 1, got {self.admit!r}")
        if self.admit >= 1:
            if self.admit != int(self.admit):
                raise ValueError(f"dynamic: admit must be an integer, or a chance below 1, got {self.admit!r}")
            fields.integer("dynamic: admit", int(self.admit), at_most=2**30)
        fields.choice("dynamic: evict", self.evict, EVICT)
        fields.choice("dynamic: unknown", self.unknown, UNKNOWN)
        if self.expire_steps is not None:
            fields.integer("dynamic: expire_steps", self.expire_steps, at_most=MAX_STEPS)
        if self.waiting is not None:
            fields.integer("dynamic: waiting", self.waiting, at_most=MAX_STEPS)

    @property
    def reserved(self) -> int:
        """Rows at the start of the table that no id gets."""
        return int(self.unknown == "row")
