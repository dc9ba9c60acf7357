"""The memory that a run needs, before it has any, and the fewest bytes that a step must move in any implementation.

Shapes come from the code that allocates, work space from the compiler, the rows of a step from a batch of the run's own
data. A lookup reads each looked-up row. The update reads and writes each touched row and each of its slots. Those rows
lie anywhere. Activations, their gradients, the packed batch, dense parameters and their optimizer state lie in order.
A rehearsal of a few steps with small tables measures the memory of a run besides its tables and batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.embedding import Embedder, EmbeddingState, Stack, TableSpec
from sparrow.feed import Feed
from sparrow.runs import Program, TrainState
from sparrow.runs.parts.reporting import status_bytes
from sparrow.runs.recorded.traffic import count
from sparrow.runs.step.step import looks_ahead, lowered_step


def size_of(tree: Any) -> int:
    """Bytes of all arrays in a tree of arrays, or of shapes.

    >>> size_of({"a": np.zeros((2, 3), np.float32), "b": jax.ShapeDtypeStruct((5,), jax.numpy.bfloat16)})
    34
    """
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


@dataclasses.dataclass(frozen=True)
class TableSize:
    """One table.

    Attributes:
      name: its own.
      stack: of the array that it lives in.
      rows, dim, dtype: of the table.
      rule: the name of its rule.
      values: bytes of its rows.
      slots: bytes of its optimizer state, by slot.
      cache: rows on the device of a table in host memory; None: all.
    """

    name: str
    stack: str
    rows: int
    dim: int
    dtype: str
    rule: str
    values: int
    slots: dict[str, int]
    cache: int | None = None

    @property
    def row_sizes(self) -> tuple[int, ...]:
        """Bytes of a row, and of its part of each slot."""
        return tuple(count // self.rows for count in (self.values, *self.slots.values()))

    @property
    def total(self) -> int:
        """Bytes of rows and slots on the device."""
        return sum(self.row_sizes) * (self.rows if self.cache is None else self.cache)

    @property
    def host(self) -> int:
        """Bytes of rows and slots in host memory apart from the device's."""
        return 0 if self.cache is None else sum(self.row_sizes) * self.rows


def table_sizes(embedder: Embedder, state: EmbeddingState) -> list[TableSize]:
    """Each table with its slots. ``state``: shapes are enough."""

    def one(spec: TableSpec, stack: Stack, arrays: Mapping[str, Any]) -> TableSize:
        rows = spec.vocabulary_size
        sizes = {slot: size_of(array) // array.shape[0] * rows for slot, array in arrays.items()}
        cache = spec.memory.rows(rows) if stack.apart and spec.memory is not None else None
        values, rule = sizes.pop(""), type(spec.optimizer).__name__
        return TableSize(spec.name, stack.name, rows, stack.dim, spec.dtype, rule, values, sizes, cache)

    return [one(spec, stack, embedder.arrays(state, stack)) for stack in embedder.stacks for spec in stack.tables]


def step_memory(program: Program, state: TrainState, feeds: tuple[Feed, ...]) -> int:
    """Compile the step for shapes, and return the bytes that it needs besides the state and the batches."""
    lowered = lowered_step(program, state, feeds)
    return work_of(lowered, lowered.compile())


def work_of(lowered: Any, compiled: Any) -> int:
    """Return the bytes of a step's activations, gradients and work space, as the compiler lays them out."""
    analysis: Any = compiled.memory_analysis()
    fresh = analysis.output_size_in_bytes - analysis.alias_size_in_bytes  # results that do not replace the state
    ahead = lowered.in_avals[0][3:]  # activations from the step before
    return int(analysis.temp_size_in_bytes + max(fresh, 0) + size_of(ahead))


def startup_peak(program: Program, state: EmbeddingState) -> int:
    """Return the peak bytes while tables get their first values.

    Independent values are drawn in small blocks, in place. Others are drawn a table at a time while the stack is held,
    with work space as the compiler lays it out; the largest table of a stack needs the most.
    """
    held = peak = 0
    for stack in program.embedder.stacks:
        array = size_of(state.tables[stack.name])
        in_one_piece = [table for table in stack.tables if not getattr(table.values, "independent", False)]
        if in_one_piece:
            largest = max(in_one_piece, key=lambda table: table.vocabulary_size)
            drawing: Any = jax.jit(largest.initial_values).lower(jax.random.key(0)).compile().memory_analysis()
            drawn = int(drawing.temp_size_in_bytes + drawing.output_size_in_bytes)
            alone = len(stack.tables) == 1  # then what is drawn is the stack
            peak = max(peak, held + drawn + (0 if alone else array))
        held += array + size_of(state.slots[stack.name])
    return max(peak, held)


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


ROWS: Final = 1000
STEPS: Final = 3
IN_PLACE: Final = {"native"}
"""Backends whose step was compared in both sizes."""


class Rehearsal:
    """A run in small: tables have at most `ROWS` rows, and ids are folded into them; all else is the run's own.

    Attributes:
      starting: bytes of this process before the first batch, without the state.
      process: the same after some steps: everything is loaded and compiled.
      work: bytes of activations, gradients and work space of a step, as the compiler lays them out.
    """

    def __init__(self, program: Program, state: TrainState) -> None:
        """Make a state of zeros. ``state``: the shapes of the run's own."""
        self._given, self._shapes, self._program = program, state, _small(program)
        self._state = _zeros(jax.eval_shape(self._program.init))
        self.starting, self.process, self.work = _beside(self._state), 0, 0

    def train(self, feeds: tuple[Feed, ...]) -> None:
        folded = tuple(_folded(self._program.embedder, feed) for feed in feeds)
        lowered = lowered_step(self._program, self._state, folded)
        step = lowered.compile()
        further: list[Any] = [_zeros(acts) for acts in lowered.in_avals[0][3:]]
        taken = folded if not further else folded + folded
        for _ in range(STEPS):
            self._state = step(self._state, taken, jnp.array(True), *further)[0]
        self.process = _beside(self._state)
        small = is_of_small_tables(self._given)
        self.work = work_of(lowered, step) if small else step_memory(self._given, self._shapes, feeds)


def is_of_small_tables(program: Program) -> bool:
    """Return whether the work space of a step is that of the same step with small tables.

    It is, where kernels look rows up and update them in place. Other backends, and a step that looks rows up for the
    next one, may copy a table: such a step is compiled in its size.
    """
    embedder = program.embedder
    backends = {embedder.backend_of(stack.tables[0].name) for stack in embedder.stacks}
    return backends <= IN_PLACE and not looks_ahead(program)


def _zeros(shapes: Any) -> Any:
    """Return arrays of these shapes, by one program."""
    return jax.jit(lambda: jax.tree.map(_zero, shapes))()


def _zero(shape: Any) -> jax.Array:
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(0), shape.shape)
    return jnp.zeros(shape.shape, shape.dtype)


def _beside(state: Any) -> int:
    jax.block_until_ready(state)  # type: ignore[no-untyped-call]
    return max((status_bytes("VmRSS") or 0) - size_of(state), 0)


def _small(program: Program) -> Program:
    specs = []
    for feature in program.embedder.features:
        table = feature.table_spec
        rows = min(table.vocabulary_size, ROWS)
        specs.append(dataclasses.replace(feature, table_spec=dataclasses.replace(table, vocabulary_size=rows)))
    embedder = Embedder(specs)
    return dataclasses.replace(
        program, embedder=embedder, optimizer=dataclasses.replace(program.optimizer, embedder=embedder)
    )


def _folded(embedder: Embedder, feed: Feed) -> Feed:
    lookups: dict[str, Any] = {}
    for stack in embedder.stacks:
        held = feed.packed.lookups[stack.name]
        lookups[stack.name] = dataclasses.replace(held, ids=held.ids % stack.num_rows)
    return feed.with_parts(packed=dataclasses.replace(feed.packed, lookups=lookups))
