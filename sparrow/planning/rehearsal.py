"""A rehearsal: a few steps with small tables, to measure the memory of a run besides its tables and batches."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import jax
import jax.numpy as jnp

from sparrow.embedding import Embedder
from sparrow.feed import Feed
from sparrow.planning.sizes import size_of, step_memory, work_of
from sparrow.runs import Program, TrainState
from sparrow.runs.parts.reporting import status_bytes
from sparrow.runs.step.step import looks_ahead, lowered_step

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
