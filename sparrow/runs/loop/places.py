"""Memory of this machine and of its devices, total and free."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import jax


@dataclasses.dataclass(frozen=True)
class Place:
    """A place with memory.

    Attributes:
      name: "host", or the device.
      total: its bytes; None: not known.
      free: the bytes that are free now.
    """

    name: str
    total: int | None
    free: int | None


def host_memory() -> Place:
    """Return the memory of the machine, or of the container of this process where that has less."""
    fields = {}
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            fields[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        return Place("host", _physical(), None)
    total, free = fields.get("MemTotal"), fields.get("MemAvailable")
    limit, used = _number("/sys/fs/cgroup/memory.max"), _number("/sys/fs/cgroup/memory.current")
    if limit is not None and used is not None and (total is None or limit < total):
        used -= _cached("/sys/fs/cgroup/memory.stat")
        total, free = limit, min(limit - used, free if free is not None else limit)
    return Place("host", total, free)


def device_memory() -> tuple[Place, ...]:
    """Return the memory of devices that have their own."""
    places = []
    for device in jax.local_devices():
        stats = device.memory_stats()
        if stats and "bytes_limit" in stats:
            free = stats["bytes_limit"] - stats.get("bytes_in_use", 0)
            places.append(Place(f"{device.device_kind} {device.id}", stats["bytes_limit"], free))
    return tuple(places)


def _physical() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _cached(path: str) -> int:
    """Return the bytes of files that a container keeps in memory, and frees where memory is needed."""
    try:
        fields = dict(line.split() for line in Path(path).read_text().splitlines())
        return int(fields["inactive_file"]) + int(fields["active_file"])
    except (OSError, ValueError, KeyError):
        return 0


def _number(path: str) -> int | None:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # no such limit, or "max"
        return None
