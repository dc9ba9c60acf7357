"""One small embedding problem for the contract suite, and its float64 twin in NumPy."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import sparrow as sp
from tests.rule_cases import CASES, Case

DIM, BATCH = 6, 5
ROWS = {"left": 11, "right": 7}
ELEMENTS, ROOM = 7, 8  # of the ordered feature in a batch, and of its activations
SHAPES = {"bag": (BATCH, DIM), "same_table": (BATCH, DIM), "weighted": (BATCH, DIM), "ordered": (ROOM, DIM)}
BY_NAME = {case.name: case for case in CASES}


@dataclasses.dataclass(frozen=True)
class Problem:
    """Two tables of one rule (so one stack), four features: pooled, single, weighted, and ordered."""

    case: Case
    embedder: sp.Embedder
    initial: sp.EmbeddingState
    lookup: Callable[..., Any]
    update: Callable[..., Any]
    apply: Callable[..., Any]

    def fresh(self) -> sp.EmbeddingState:
        """A state of its own, safe to donate."""
        return jax.tree.map(jnp.array, self.initial)

    def pack(self, inputs: dict[str, Any]) -> sp.PackedBatch:
        """The inputs of `random_inputs`, packed."""
        return self.embedder.pack(inputs)


@functools.cache
def problem(case: str, backend: str) -> Problem:
    """Built and compiled once for all tests."""
    rule = BY_NAME[case].rule
    left = sp.TableSpec(name="left", vocabulary_size=ROWS["left"], embedding_dim=DIM, optimizer=rule, combiner="mean")
    right = sp.TableSpec(name="right", vocabulary_size=ROWS["right"], embedding_dim=DIM, optimizer=rule)
    embedder = sp.Embedder(
        [
            sp.FeatureSpec(name="bag", table_spec=left),
            sp.FeatureSpec(name="same_table", table_spec=left),
            sp.FeatureSpec(name="weighted", table_spec=right),
            sp.FeatureSpec(name="ordered", table_spec=right, combiner=None),
        ],
        backend=backend,
    )
    state = embedder.init(jax.random.key(1))
    rng = np.random.default_rng(1)
    for table, rows in ROWS.items():
        state = embedder.with_table(state, table, rng.normal(size=(rows, DIM)).astype(np.float32))
    return Problem(
        BY_NAME[case],
        embedder,
        initial=state,
        lookup=jax.jit(embedder.lookup),
        update=jax.jit(embedder.update, donate_argnums=0),
        apply=jax.jit(embedder.apply, donate_argnums=0),
    )


def random_inputs(rng: np.random.Generator) -> dict[str, Any]:
    """Ragged bags with duplicates and empty ones, weights, and single ids; the last rows are never touched.

    Always as many ids in all, so that a step compiles once.
    """
    offsets = np.concatenate([[0], np.cumsum(rng.permutation([0, 1, 2, 3, 1]))])
    weighted = sp.Ragged(rng.integers(0, 4, offsets[-1]), offsets, rng.uniform(0.5, 2, offsets[-1]))
    bag = [rng.integers(0, 6, length).tolist() for length in rng.permutation([0, 1, 2, 3, 4])]
    ordered = [rng.integers(0, 4, length).tolist() for length in rng.permutation([0, 1, 2, 3, 1])]
    return {"bag": bag, "same_table": rng.integers(0, 8, BATCH), "weighted": weighted, "ordered": ordered}


def random_grads(rng: np.random.Generator) -> dict[str, Any]:
    """A gradient for every activation; that of an ordered feature's padding must reach no row."""
    return {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in SHAPES.items()}


def float64_row_grads(inputs: dict[str, Any], grads: dict[str, Any]) -> dict[str, dict[int, Any]]:
    """The summed gradient of every touched row, by table and row, in float64."""
    sums: dict[str, dict[int, Any]] = {"left": {}, "right": {}}

    def add(table: str, row: int, value: Any) -> None:
        sums[table][row] = sums[table].get(row, 0.0) + value

    grad = {name: np.asarray(value, np.float64) for name, value in grads.items()}
    for b in range(BATCH):
        for row in inputs["bag"][b]:
            add("left", row, grad["bag"][b] / len(inputs["bag"][b]))
        add("left", int(inputs["same_table"][b]), grad["same_table"][b])
        ragged = inputs["weighted"]
        for i in range(ragged.offsets[b], ragged.offsets[b + 1]):
            add("right", int(ragged.values[i]), np.float64(np.float32(ragged.weights[i])) * grad["weighted"][b])
    for i, row in enumerate(row for sequence in inputs["ordered"] for row in sequence):
        add("right", row, grad["ordered"][i])
    return sums


class Float64Twin:
    """The same tables and slots in NumPy float64, updated by the case's own equation."""

    def __init__(self, setup: Problem, state: sp.EmbeddingState) -> None:
        self.equation = setup.case.equation
        self.tables = {name: np.asarray(setup.embedder.table(state, name), np.float64) for name in ROWS}
        self.slots = {
            name: {k: np.asarray(v, np.float64) for k, v in setup.embedder.slots(state, name).items()} for name in ROWS
        }

    def step(self, t: int, inputs: dict[str, Any], grads: dict[str, Any]) -> None:
        """One optimizer step."""
        for name, rows in float64_row_grads(inputs, grads).items():
            for row, grad in rows.items():
                slots = {k: v[row] for k, v in self.slots[name].items()}
                self.tables[name][row], new = self.equation(self.tables[name][row], grad, slots, t)
                for k, v in new.items():
                    self.slots[name][k][row] = v
