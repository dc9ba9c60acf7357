"""Checks of an `Embedder`: its features, and the states, batches and gradients that its methods are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

from sparrow.embedding.packed_batch import PackedBatch
from sparrow.embedding.specs import FeatureSpec, TableSpec
from sparrow.embedding.stacking import Stack
from sparrow.embedding.state import devices_of
from sparrow.kernels import Lookups
from sparrow.registry import nearest


def collect_tables(features: Sequence[FeatureSpec]) -> dict[str, TableSpec]:
    """Return the tables of features, by name."""
    tables: dict[str, TableSpec] = {}
    for feature in features:
        table = feature.table_spec
        if tables.setdefault(table.name, table) != table:
            raise ValueError(
                f"two different tables are called '{table.name}'; features that share a table must share its TableSpec"
            )
    return tables


def check_memory(stacks: Iterable[Stack]) -> None:
    """Raise ValueError where a table on a mesh is in host memory apart from the devices'."""
    for stack in stacks:
        if stack.apart:
            raise ValueError(
                f"table '{stack.tables[0].name}' is in host memory, which works on one GPU, and not yet on a mesh of "
                "them; leave memory out: rows are spread over the devices"
            )


def check_state(state: Any, layout: Mapping[str, Any]) -> None:
    """Raise an error unless this is an `EmbeddingState` whose rows are in the order of ``layout``."""
    if not hasattr(state, "tables"):
        kind = type(state).__name__
        raise TypeError(f"the state must be what emb.init made, got {kind}; an Optimizer keeps it as state.embedding")
    if state.layout.keys() != layout.keys():
        found, devices = devices_of(state.layout), devices_of(layout)
        other = f"{found} devices, this Embedder has {devices}" if found != devices else "other places than here"
        raise ValueError(
            f"the rows of this state are in the order of {other}; restore its checkpoint with "
            "sparrow.checkpoint.restore_orbax"
        )


def check_batch(batch: Any, stacks: Sequence[Stack], *, is_on_mesh: bool) -> None:
    """Raise an error unless the batch is packed for these stacks and ready for the device."""
    if not isinstance(batch, PackedBatch):
        raise TypeError(f"pack the batch first: emb.pack(inputs); got {type(batch).__name__}")
    if [name for name, _ in batch.groups] != [stack.name for stack in stacks]:
        raise ValueError("this batch was packed by another Embedder; use this one's pack")
    if any(isinstance(lookups, Lookups) == is_on_mesh for lookups in batch.lookups.values()):
        raise ValueError("this batch was packed by an Embedder on other devices; use this one's pack")


def check_assigned(batch: PackedBatch, stacks: Iterable[Stack]) -> None:
    """Raise ValueError where ids of dynamic tables have no rows, or rows in host memory are not on the device."""
    if batch.raw or any(stack.apart and stack.name not in batch.cached for stack in stacks):
        raise ValueError(
            "the batch has ids of dynamic tables, or of tables in host memory, without rows on the device: call "
            "state, batch = emb.assign(state, batch) at the head of the step"
        )


def check_act_grads(expected: Mapping[str, tuple[int, int]], act_grads: Mapping[str, Any]) -> None:
    """Raise ValueError unless every feature has a gradient of the shape ``expected``."""
    for name in act_grads:
        if name not in expected:
            raise ValueError(f"act_grads has an unknown feature '{name}': {nearest(str(name), expected)}")
    for name, shape in expected.items():
        if name not in act_grads:
            raise ValueError(f"act_grads lacks the feature '{name}'")
        if jnp.shape(act_grads[name]) != shape:
            raise ValueError(f"act_grads['{name}'] must have the shape {shape}, got {jnp.shape(act_grads[name])}")
