"""The fewest bytes that a step must move in any implementation, counted on a batch of the run's own data.

A lookup reads each looked-up row. The update reads and writes each touched row and each of its slots. Those rows lie
anywhere. Activations, their gradients, the packed batch, dense parameters and their optimizer state lie in order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from sparrow.feed import Feed
from sparrow.planning.sizes import TableSize, size_of
from sparrow.runs import Program, TrainState
from sparrow.runs.recorded.traffic import count


@dataclasses.dataclass(frozen=True)
class TableMovement:
    """The work of a step on one table.

    Attributes:
      lookups: rows read, repetitions included.
      touched: different rows among them, each updated once.
      row: bytes of a row.
      slots: bytes of one row's slots, each lying in an array of its own.
    """

    lookups: int
    touched: int
    row: int
    slots: tuple[int, ...]

    @property
    def scattered(self) -> int:
        """Bytes of rows and slots that lie anywhere."""
        return self.lookups * self.row + 2 * self.touched * (self.row + sum(self.slots))


@dataclasses.dataclass(frozen=True)
class Movement:
    """The bytes that a step moves.

    Attributes:
      tables: by name.
      ordered: bytes that lie in order.
    """

    tables: Mapping[str, TableMovement]
    ordered: int

    @property
    def scattered(self) -> int:
        """Bytes of rows and slots."""
        return sum(table.scattered for table in self.tables.values())

    @property
    def total(self) -> int:
        """All bytes."""
        return self.scattered + self.ordered


def movement(program: Program, state: TrainState, feeds: tuple[Feed, ...], sizes: Mapping[str, TableSize]) -> Movement:
    """Return the movement of a step on these batches."""
    tables: dict[str, TableMovement] = {}
    activations = 0
    for feed in feeds:
        for name, rows in count(program.embedder, feed.packed).items():
            size = sizes[name]
            before = tables.get(name, TableMovement(0, 0, 0, ()))
            # Micro-batches that share rows make fewer touched rows than this; it is an upper bound then.
            tables[name] = TableMovement(
                before.lookups + int(rows.counts.sum()),
                min(before.touched + len(rows.rows), size.rows),
                size.values // size.rows,
                tuple(slot // size.rows for slot in size.slots.values()),
            )
        # Written by the lookup, read by the model; their gradients the other way round.
        widths = sum(spec.table_spec.embedding_dim for spec in program.embedder.features)
        activations += 4 * feed.size * widths * 4
    optimizer = state.optimizer
    dense = size_of((optimizer.params, optimizer.dense, optimizer.ema))
    return Movement(tables, activations + sum(feed.nbytes for feed in feeds) + 2 * dense)
