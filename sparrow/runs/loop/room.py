"""Checks that refuse models too large for the memory, before anything of them is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import jax.numpy as jnp

from sparrow.embedding import Embedder
from sparrow.errors import ConfigError, Problem
from sparrow.reports import size
from sparrow.rules import PER_ROW
from sparrow.runs.loop.places import Place, device_memory, host_memory
from sparrow.trees import named_leaves

SHOWN: Final = 3
"""The number of tables or parameters that the message names."""


def refuse_large_layers(state: tuple[Any, Any]) -> None:
    """Compare the shapes of a model's parameters and rest with the free memory; raise `ConfigError` if too large."""
    leaves = named_leaves(state[0]) | named_leaves(state[1])
    _refuse("model", "parameters", {name: leaf.size * leaf.dtype.itemsize for name, leaf in leaves.items()}, 0)


def refuse_large_tables(embedder: Embedder, dense: int = 0) -> None:
    """Compare tables, slots and ``dense`` bytes with the free memory; raise `ConfigError` if they are more."""
    sizes: dict[str, int] = {}
    apart: dict[str, int] = {}
    for stack in embedder.stacks:
        slots = sum(4 if layout == PER_ROW else 4 * stack.dim for _, layout in stack.step.slots)
        row = stack.dim * jnp.dtype(stack.step.dtype).itemsize + slots
        sizes |= {table.name: table.vocabulary_size * row for table in stack.tables}
        if stack.apart:
            apart |= {table.name: sizes[table.name] for table in stack.tables}
            sizes |= {one.name: held.rows * row for one, held in zip(stack.tables, stack.cache.segments, strict=True)}
    _refuse("data.features", "tables in host memory", apart, 0, 0)
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
    """Return the memory of a number of devices together, or the host's: for none, and where devices have none."""
    places = device_memory()[:devices]
    if len(places) < 2:
        return next(iter(places), None) or host_memory()
    least = min((place.free for place in places if place.free is not None), default=None)
    return Place(f"{len(places)} devices", None, None if least is None else least * len(places))
