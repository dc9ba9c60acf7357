"""The parts of a machine that decide the last bits of a run.

A resumed run produces the bits of one that never stopped on the same kind and number of devices, with the same number
of threads, the same backend of the tables and the same versions: XLA splits sums of matrix products by the
number of threads, and backends and versions may add in another order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import jax

from sparrow import processes
from sparrow.checkpoint import Saved
from sparrow.embedding import Embedder
from sparrow.versions import versions


def machine(embedder: Embedder) -> dict[str, str]:
    """Return devices, threads and backends, for a checkpoint."""
    return {
        "device": jax.devices()[0].device_kind,
        "devices": str(1 if embedder.shards is None else embedder.shards.mesh.size),
        "processes": str(processes.count()),
        "threads": str(threads()),
        "backend": ", ".join(sorted({embedder.backend_of(table) for table in embedder.tables})),
    }


def threads() -> int:
    """Return the threads that XLA computes with on a CPU: NPROC, or the cores that this process may use."""
    given = os.environ.get("NPROC", "")
    if given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def log_differences(saved: Saved, embedder: Embedder, log: Callable[[str], None]) -> None:
    """Log the differences between the machine of a checkpoint and this one, in one line."""
    now: dict[str, Any] = {**machine(embedder), **versions()}
    before = {**_mapping(saved.about.get("machine")), **_mapping(saved.about.get("versions"))}
    names = [name for name in now if name in before and before[name] != now[name]]
    if names:
        changed = "; ".join(f"{name} was {before[name]}, is now {now[name]}" for name in names)
        log(f"the last bits may differ from those of a run that never stopped: {changed}")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
