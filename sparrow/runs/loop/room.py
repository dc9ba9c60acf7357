"""Checks that refuse models too large for the memory, before anything of them is allocated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax
from flax import nnx

from sparrow.embedding import Embedder
from sparrow.errors import ConfigError, Problem
from sparrow.reports import size
from sparrow.runs.loop.places import Place, device_memory, host_memory
from sparrow.trees import named_leaves

SHOWN: Final = 3
"""The number of tables or parameters that the message names."""


def refuse_large_layers(build: Callable[[], Any]) -> None:
    """Compare the parameters of a model with the free memory before it is built; raise `ConfigError` if too large."""
    state = nnx.state(nnx.eval_shape(build))
    shapes = {name: math.prod(leaf.shape) * leaf.dtype.itemsize for name, leaf in named_leaves(state).items()}
    _refuse("model", "parameters", shapes, 0)


def refuse_large_tables(embedder: Embedder, dense: int = 0) -> None:
    """Compare tables, slots and ``dense`` bytes with the free memory; raise `ConfigError` if they are more."""
    state = jax.eval_shape(embedder.init, jax.random.key(0))
    sizes: dict[str, int] = {}
    for stack in embedder.stacks:
        arrays = [state.tables[stack.name], *state.slots[stack.name].values()]
        row = sum(math.prod(array.shape[1:]) * array.dtype.itemsize for array in arrays)
        sizes |= {table.name: table.vocabulary_size * row for table in stack.tables}
    shards = embedder.shards
    devices = 1 if shards is None else len(shards.local)
    if shards is not None:  # the share of this process
        sizes = {name: held * devices // shards.count for name, held in sizes.items()}
    _refuse("data.features", "tables with their slots", sizes, dense, devices)


def _refuse(field: str, what: str, sizes: Mapping[str, int], others: int, devices: int = 1) -> None:
    need, place = sum(sizes.values()) + others, _free(devices)
    if place is None or place.free is None or need <= place.free:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:SHOWN]
    shown = ", ".join(f"{name} {size(sizes[name])}" for name in largest) + ", ..." * (len(sizes) > SHOWN)
    text = f"{what} need {size(need)} of memory, {size(place.free)} are free ({place.name}): {shown}"
    raise ConfigError([Problem(tuple(field.split(".")), f"{text}; `sparrow plan` shows what fits")])


def _free(devices: int) -> Place | None:
    """Return the memory of so many devices together, or the host's where devices have none of their own."""
    places = device_memory()[:devices]
    if len(places) < 2:
        return next(iter(places), None) or host_memory()
    least = min((place.free for place in places if place.free is not None), default=None)
    return Place(f"{len(places)} devices", None, None if least is None else least * len(places))
