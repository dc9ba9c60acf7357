"""`HostTables`: all tables in host memory, and the cache of their rows on the device.

Three threads meet here. One plans and gathers, ahead of the steps: `see` and `stage`. One makes the steps: `advance`
and `flush`. The writer stores rows that come back. Order is kept by one number, `Writer.landed`: rows that left before
step t are not gathered before it has reached t.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import jax
import numpy as np
import numpy.typing as npt

from sparrow.embedding.host.exchange import Room, padded, put, swap
from sparrow.embedding.host.planner import Ids, Moves
from sparrow.embedding.host.plans import HostStack, IdsOf, Plans
from sparrow.embedding.host.rows import TABLE, Array, HostRows
from sparrow.embedding.host.swaps import Counts, StackMoves, Swap, Undo
from sparrow.embedding.host.transfer import Sender, blocks, to_host
from sparrow.embedding.host.workers import cores
from sparrow.embedding.host.writer import Outgoing, Writer
from sparrow.embedding.sizes import size_class
from sparrow.embedding.state import EmbeddingState

if TYPE_CHECKING:
    from sparrow.embedding.dynamic.new_rows import NewRows

FLUSH_BYTES: Final = 32 << 20
"""Bytes of the cache that are copied off the device at a time."""
KEPT: Final = 8
"""Steps whose moves are kept, to go back over them."""


class HostTables:
    """Rows and slots in host memory, by stack, and the plans of their caches.

    Nothing is allocated before `start` or `init`.

    Attributes:
      stacks: the stacks, by name.
      lookahead: steps that are seen before the oldest of them is staged.
      total: the work of all steps that were made.
    """

    def __init__(
        self,
        stacks: Sequence[HostStack],
        *,
        lookahead: int = 6,
        threads: int | None = None,
        can_give_back: bool = False,
    ) -> None:
        """Take the stacks. ``can_give_back``: keep the values that `give_back` needs."""
        self._can_give_back = can_give_back
        self.stacks = {stack.logical.name: stack for stack in stacks}
        self.lookahead = lookahead
        self.total = Counts()
        self._threads = cores() if threads is None else threads
        self.rows: dict[str, HostRows] = {}
        self._stack_of = {table.name: stack for stack in stacks for table in stack.logical.tables}

    @property
    def tables(self) -> list[str]:
        """The names of the tables."""
        return list(self._stack_of)

    def start(self) -> None:
        """Reserve memory for rows and slots, with any content, and begin with empty caches."""
        if self.rows:
            self.close()
        self.rows = {name: HostRows(stack.logical, self._threads) for name, stack in self.stacks.items()}
        self._sender = Sender(jax.devices()[0])
        self._rooms = {name: (Room(), Room()) for name in self.stacks}  # of rows that come, and that leave
        self._begin()

    def _begin(self) -> None:
        self.writer = Writer(self.rows)
        self._plans = Plans(self.stacks, self._threads)
        self._resident = {
            name: np.full(stack.cached.num_rows, -1, np.int32) for name, stack in self.stacks.items()
        }  # by slot: the row, as of the last step that was made
        self._seen = self._staged = self._made = 0
        self._counted: deque[Counts] = deque()
        self._history: deque[tuple[int, dict[str, StackMoves]]] = deque(maxlen=KEPT)
        self._is_flushed = True

    def init(self, key: jax.Array) -> None:
        """Begin with the first values of all tables."""
        self.start()
        self.draw(key)

    def draw(self, key: jax.Array) -> None:
        """Set the first values of all tables."""
        for rows in self.rows.values():
            rows.init(key)

    def restart(self, state: EmbeddingState) -> None:
        """Store all rows, and begin again with empty caches: steps that were planned and not made are forgotten."""
        self.flush(state)
        self.writer.close()
        self._begin()

    @property
    def made(self) -> int:
        """Steps that were made since the caches were empty."""
        return self._made if self.rows else 0

    @property
    def is_idle(self) -> bool:
        """Whether every step that was planned was made."""
        return self._seen == self._staged == self._made

    def close(self) -> None:
        """End the threads, and whoever waits for rows; the rows stay."""
        if self.rows:
            self.writer.close()

    # Ahead of the steps.

    def see(self, batches: Sequence[IdsOf]) -> None:
        """Let the batches of the next step enter the window. Raise ValueError where they need more rows than fit."""
        self._counted.append(Counts(*self._plans.see(self._seen, batches)))
        self._seen += 1

    def stage(self, batches: Sequence[IdsOf], new: Sequence[Mapping[str, NewRows]] = ()) -> Swap:
        """Take the oldest step of the window, whose batches these are: slots instead of rows, in place.

        The rows that come are on their way to the device when it returns, but for the rows of ``new``, by batch and
        table: they get slots alone, and `Embedder.admit` sets their values.
        """
        step, stacks, counts = self._staged, dict[str, StackMoves](), self._counted.popleft()
        moves = self._plans.admit(batches)
        after = max((of_stack.after for of_stack in moves.values()), default=-1)
        counts += Counts(waited=self._wait(after))
        for name, of_stack in moves.items():
            own = self._fresh(name, new)
            fresh = np.isin(of_stack.in_rows, own) if len(own) else np.zeros(len(of_stack.in_rows), bool)
            started, leaving = int(fresh.sum()), len(of_stack.out_rows)
            coming, size = len(fresh) - started, self.rows[name].row_bytes
            counts += Counts(0, 0, coming, leaving, of_stack.early, coming * size, leaving * size, started=started)
            if len(fresh):
                stacks[name] = self._sent(name, of_stack, fresh)
        self._staged += 1
        return Swap(step, stacks, counts)

    def _wait(self, after: int) -> float:
        """Wait until rows that left before step ``after`` are home."""
        return self.writer.wait_for(after)

    def _fresh(self, stack: str, new: Sequence[Mapping[str, NewRows]]) -> Ids:
        """Return the rows of a logical stack that start fresh."""
        made = [np.zeros(0, np.int32)]
        for of_batch in new:
            for table, fresh in of_batch.items():
                if table in self._stack_of and self._stack_of[table].logical.name == stack:
                    span, rows = self._stack_of[table].logical.rows_of(table), np.asarray(fresh.rows)
                    made.append(rows[rows < span.stop - span.start] + np.int32(span.start))
        return np.concatenate(made)

    def _sent(self, name: str, moves: Moves, fresh: npt.NDArray[np.bool_]) -> StackMoves:
        cached, held, (rooms_in, rooms_out) = self.stacks[name].cached, self.rows[name], self._rooms[name]
        coming = ~fresh
        size = rooms_out.fit(len(moves.in_slots))  # as many leave once the cache is full
        in_slots = padded(moves.in_slots[coming], cached.num_rows, rooms_in.fit(int(coming.sum())))
        buffers = {
            part: self._sender.buffer((len(in_slots), *array.shape[1:]), array.dtype)
            for part, array in held.arrays.items()
        }
        held.gather(moves.in_rows[coming], {part: buffer.values for part, buffer in buffers.items()})
        values = {part: self._sender.send(buffer) for part, buffer in buffers.items()}
        undo = None
        if self._can_give_back and fresh.any():
            rows = moves.in_rows[fresh]
            undo = Undo(rows, {part: array[rows] for part, array in held.arrays.items()})
        own_slots = own = None
        if cached.step.stochastic:
            starts = self._plans.first_rows(name)
            numbers = np.zeros(size, np.int32)
            tables = np.searchsorted(starts, moves.in_rows, side="right") - 1
            numbers[: len(moves.in_rows)] = moves.in_rows - starts[tables]
            own_slots, own = jax.device_put((padded(moves.in_slots, cached.num_rows, size), numbers))
        out = jax.device_put(padded(moves.out_slots, cached.num_rows, size)) if len(moves.out_slots) else None
        return StackMoves(moves, jax.device_put(in_slots), values, own_slots, own, out, undo)

    # At the steps.

    def advance(self, state: EmbeddingState, step: Swap) -> EmbeddingState:
        """Return the state with the rows of a step on the device; it is donated. Others are on their way home."""
        if step.step != self._made:
            raise ValueError(f"step {self._made} is next, and these are the rows of step {step.step}: keep the order")
        tables, slots, table_rows = dict(state.tables), dict(state.slots), dict(state.table_rows)
        outgoing = Outgoing(step.step, {}, {})
        for name, moves in step.stacks.items():
            arrays = {TABLE: tables[name], **slots[name]}
            if moves.out_slots is None:
                arrays = put(arrays, moves.in_slots, moves.in_values)
            else:
                arrays, taken = swap(arrays, moves.out_slots, moves.in_slots, moves.in_values)
                outgoing.rows[name], outgoing.values[name] = moves.rows.out_rows, to_host(taken)
            tables[name] = arrays.pop(TABLE)
            slots[name] = arrays
            if moves.own is not None:
                rows = put({TABLE: table_rows[name]}, moves.own_slots, {TABLE: moves.own})
                table_rows[name] = rows[TABLE]
            self._resident[name][moves.rows.in_slots] = moves.rows.in_rows
        if outgoing.rows:
            self.writer.put(outgoing)
        self._made += 1
        self._is_flushed = False
        self._history.append((step.step, {name: _without_values(moves) for name, moves in step.stacks.items()}))
        self.total += step.counts
        return dataclasses.replace(state, tables=tables, slots=slots, table_rows=table_rows)

    def flush(self, state: EmbeddingState) -> None:
        """Bring host memory up to date with the last step that was made. The caches stay as they are."""
        if self._is_flushed:
            return
        self.writer.drain()
        for name, held in self.rows.items():
            arrays = {TABLE: state.tables[name], **state.slots[name]}
            for part, array in held.arrays.items():
                size = 1 << max((FLUSH_BYTES // max(array.nbytes // len(array), 1)).bit_length() - 1, 0)
                for first, block in blocks(arrays[part], 0, len(self._resident[name]), size):
                    rows = self._resident[name][first : first + len(block)]
                    used = rows >= 0
                    rows, block = (rows, block) if used.all() else (rows[used], block[used])
                    held.scatter(rows, {part: block})
        self._is_flushed = True

    # Rows, where they are up to date.

    def array(self, table: str, slot: str | None = None) -> Array:
        """Return all rows of a table, or of one of its slots, as of the last `flush`: a view."""
        logical = self._stack_of[table].logical
        return self.rows[logical.name].arrays[slot or TABLE][logical.rows_of(table)]

    def read(self, stack: str, ids: Ids) -> jax.Array:
        """Return the rows of one batch on the device, from host memory, and replace its ids by places among them."""
        num_rows = self.stacks[stack].logical.num_rows
        valid = (ids >= 0) & (ids < num_rows)
        rows, places = np.unique(ids[valid], return_inverse=True)
        array = self.rows[stack].arrays[TABLE]
        size = size_class(len(rows))
        buffer = self._sender.buffer((size, *array.shape[1:]), array.dtype)
        self.rows[stack].gather(rows, {TABLE: buffer.values})
        buffer.values[len(rows) :] = 0
        ids[valid] = places
        ids[~valid] = size
        return self._sender.send(buffer)

    def overwrite(self, table: str, slot: str | None, values: Any) -> None:
        """Replace all rows of a table, or of one of its slots. The caches must be empty."""
        array = self.array(table, slot)
        what = f"table '{table}'" if slot is None else f"slot '{slot}' of table '{table}'"
        if np.shape(values) != array.shape:
            raise ValueError(f"{what} has the shape {array.shape}, got {np.shape(values)}")
        array[...] = np.asarray(values)

    def slot_names(self, table: str) -> list[str]:
        """Return the names of a table's slots."""
        return [name for name, _ in self._stack_of[table].logical.step.slots]

    def new_in_slots(self, new: Mapping[str, NewRows]) -> dict[str, NewRows]:
        """Return the fresh rows of dynamic tables, of the step that was just staged, as slots of their caches."""
        made = {}
        for table, fresh in new.items():
            if table not in self._stack_of:
                made[table] = fresh
                continue
            logical, cached = self._stack_of[table]
            rows = np.array(fresh.rows)
            used = rows < logical.rows_of(table).stop - logical.rows_of(table).start
            slots = self._plans.slots_of(logical.name, rows[used] + logical.rows_of(table).start)
            span = cached.rows_of(table)
            rows[~used] = span.stop - span.start
            rows[used] = slots - span.start
            made[table] = dataclasses.replace(fresh, rows=rows)  # type: ignore[arg-type]
        return made

    # Back over the last steps, which changed nothing.

    def rows_at(self, stack: str, slots: Ids, step: int) -> Ids:
        """Return the rows that were in slots at ``step``, one of the last steps; of others, the number of rows."""
        held = self._resident[stack].copy()
        for later, moves in reversed(self._history):
            if later > step and stack in moves:
                held[moves[stack].rows.in_slots] = -1
                held[moves[stack].rows.out_slots] = moves[stack].rows.out_rows
        valid = (slots >= 0) & (slots < len(held))
        rows = np.where(valid, held[np.where(valid, slots, 0)], -1)
        return np.where(rows >= 0, rows, self.stacks[stack].logical.num_rows).astype(np.int32)

    def give_back(
        self, state: EmbeddingState, overwritten: Sequence[tuple[Mapping[str, NewRows], Mapping[str, Any]]], step: int
    ) -> None:
        """Restore rows of dynamic tables as they were before ``step``, one of the last, which changed no other row.

        ``overwritten``: for each of its batches the fresh rows, as slots, and the values that the slots had before
        (`Embedder.overwritten`). The caches are empty afterwards.
        """
        self.flush(state)
        for later, moves in reversed(self._history):
            if later > step:
                self._undo(moves)
        for new, held in reversed(overwritten):
            for table, fresh in new.items():
                logical, cached = self._stack_of[table]
                span, slots = cached.rows_of(table), np.asarray(fresh.rows)
                used = slots < span.stop - span.start
                rows = self.rows_at(logical.name, (slots + span.start).astype(np.int32), step)[used]
                values = {name: np.asarray(array)[used] for name, array in held[table].items()}
                self.rows[logical.name].scatter(rows, values)
        self._undo(dict(self._history).get(step, {}))  # last: slots of rows that were not copied had other rows' values
        self.writer.close()
        self._begin()

    def _undo(self, moves: Mapping[str, StackMoves]) -> None:
        for name, of_stack in moves.items():
            if of_stack.undo is not None:
                self.rows[name].scatter(*of_stack.undo)


def _without_values(moves: StackMoves) -> StackMoves:
    """Return moves whose values on the device are no longer held."""
    return moves._replace(in_values={}, own_slots=None, own=None, out_slots=None)
