"""Rows of ids that are new in a batch: started before the step, and given back where it is undone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from sparrow.embedding.dynamic.new_rows import Arrays, Spread, held_rows, put_back, started
from sparrow.embedding.packed_batch import PackedBatch
from sparrow.embedding.stacking import Stack
from sparrow.embedding.state import EmbeddingState

SpreadOf = Callable[[Stack], Spread | None]
"""Return the places of a stack's rows on a mesh; None: one device."""


def admit(
    stacks: Sequence[Stack],
    state: EmbeddingState,
    batch: PackedBatch,
    spread: SpreadOf,
    when: jax.Array | None = None,
) -> tuple[EmbeddingState, PackedBatch]:
    """Start the new rows, as `Embedder.admit` has it."""
    if not batch.new:
        return state, batch
    return _changed(
        stacks, state, batch, lambda stack, held: started(stack, held, state.seed, batch.new, when, spread(stack))
    )


def overwritten(stacks: Sequence[Stack], state: EmbeddingState, batch: PackedBatch, spread: SpreadOf) -> dict[str, Any]:
    """Return the values that `admit` overwrites."""
    held: dict[str, Any] = {}
    for stack in stacks:
        held |= held_rows(stack, _arrays(state, stack), batch.new, spread(stack))
    return held


def give_back(
    stacks: Sequence[Stack], state: EmbeddingState, batch: PackedBatch, held: Mapping[str, Any], spread: SpreadOf
) -> EmbeddingState:
    """Undo `admit`: ``held`` is the result of `overwritten`."""
    return _changed(
        stacks, state, batch, lambda stack, arrays: put_back(stack, arrays, batch.new, held, spread(stack))
    )[0]


def _arrays(state: EmbeddingState, stack: Stack) -> Arrays:
    return {"": state.tables[stack.name], **state.slots[stack.name]}


def _changed(
    stacks: Sequence[Stack], state: EmbeddingState, batch: PackedBatch, change: Callable[[Stack, Arrays], Arrays]
) -> tuple[EmbeddingState, PackedBatch]:
    """Return the state with the arrays changed of stacks that have new rows, and the batch without these."""
    tables, slots = dict(state.tables), dict(state.slots)
    for stack in stacks:
        if any(table.name in batch.new for table in stack.tables):
            arrays = change(stack, _arrays(state, stack))
            tables[stack.name] = arrays.pop("")
            slots[stack.name] = arrays
    return dataclasses.replace(state, tables=tables, slots=slots), dataclasses.replace(batch, new={})
