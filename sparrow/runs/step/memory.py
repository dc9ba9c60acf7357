"""The memory of this machine and of its devices; models too large for it are refused before they are allocated."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jax

from sparrow.embedding import Embedder, table_bytes
from sparrow.errors import ConfigError
from sparrow.files import proc_bytes
from sparrow.reports import size
from sparrow.trees import named_leaves

SHOWN: Final = 3
"""The number of tables or parameters that the message names."""


@dataclasses.dataclass(frozen=True)
class Memory:
    """The bytes of the "host", or of a device by its name: in total, and free now; None: not known."""

    name: str
    total: int | None
    free: int | None


def host_memory() -> Memory:
    """Return the memory of the machine, or of the container of this process where that has less."""
    fields = proc_bytes("/proc/meminfo")
    if not fields:
        with contextlib.suppress(ValueError, OSError):
            return Memory("host", os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), None)
    total, free = fields.get("MemTotal"), fields.get("MemAvailable")
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None and (total is None or limit < total):
        used -= _cached("/sys/fs/cgroup/memory.stat")
        total, free = limit, min(limit - used, free if free is not None else limit)
    return Memory("host", total, free)


def device_memory() -> tuple[Memory, ...]:
    """Return the memory of devices that have their own."""
    places = []
    for device in jax.local_devices():
        stats = device.memory_stats()
        if stats and "bytes_limit" in stats:
            free = stats["bytes_limit"] - stats.get("bytes_in_use", 0)
            places.append(Memory(f"{device.device_kind} {device.id}", stats["bytes_limit"], free))
    return tuple(places)


def _cached(path: str) -> int:
    """Return the bytes of files that a container keeps in memory, and frees where memory is needed."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        fields = dict(line.split() for line in Path(path).read_text().splitlines())
        return int(fields["inactive_file"]) + int(fields["active_file"])
    return 0


def _number(path: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):  # no such limit, or "max"
        return int(Path(path).read_text())
    return None


def refuse_large_layers(state: tuple[Any, Any]) -> None:
    """Compare the shapes of a model's parameters and rest with the free memory; raise `ConfigError` if too large."""
    leaves = named_leaves(state[0]) | named_leaves(state[1])
    _refuse("model", "parameters", {name: leaf.size * leaf.dtype.itemsize for name, leaf in leaves.items()}, 0)


def refuse_large_tables(embedder: Embedder, dense: int = 0) -> None:
    """Compare tables, slots and ``dense`` bytes with the free memory; raise `ConfigError` if they are more."""
    sizes: dict[str, int] = {}
    apart: dict[str, int] = {}
    for stack in embedder.stacks:
        sizes |= {table.name: table_bytes(table) for table in stack.tables}
        if stack.apart:
            apart |= {table.name: sizes[table.name] for table in stack.tables}
            caches = zip(stack.tables, stack.cache.segments, strict=True)
            sizes |= {one.name: sizes[one.name] * held.rows // one.vocabulary_size for one, held in caches}
    shards = embedder.shards
    devices = 1 if shards is None else len(shards.local)
    if shards is not None:  # the share of this process
        places = embedder.sharded.places
        sizes, apart = (
            {name: places[name].share(shards.local, held) for name, held in own.items()} for own in (sizes, apart)
        )
    _refuse("data.features", "tables in host memory", apart, 0, 0)
    _refuse("data.features", "tables with their slots", sizes, dense, devices)


def _refuse(field: str, what: str, sizes: Mapping[str, int], others: int, devices: int = 1) -> None:
    need, place = sum(sizes.values()) + others, _free(devices)
    if place is None or place.free is None or need <= place.free:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:SHOWN]
    shown = ", ".join(f"{name} {size(sizes[name])}" for name in largest) + ", ..." * (len(sizes) > SHOWN)
    text = f"{what} need {size(need)} of memory, {size(place.free)} are free ({place.name}): {shown}"
    raise ConfigError(f"{text}; `sparrow plan` shows what fits", at=tuple(field.split(".")))


def _free(devices: int) -> Memory | None:
    """Return the memory of a number of devices together, or the host's: for none, and where devices have none."""
    places = device_memory()[:devices]
    if len(places) < 2:
        return next(iter(places), None) or host_memory()
    least = min((place.free for place in places if place.free is not None), default=None)
    return Memory(f"{len(places)} devices", None, None if least is None else least * len(places))
