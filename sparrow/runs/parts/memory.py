"""The memory that a run holds now."""

from __future__ import annotations

from pathlib import Path

import jax


def memory() -> dict[str, float]:
    """Return the bytes of ``host_memory`` (resident set of this process) and, where known, ``device_memory``.

    On a machine whose only device is its CPU, the tables are in the process's own memory.
    """
    held: dict[str, float] = {}
    stats = [device.memory_stats() for device in jax.local_devices()]
    if stats and all(of_device and "bytes_in_use" in of_device for of_device in stats):
        held["device_memory"] = float(sum(of_device["bytes_in_use"] for of_device in stats))
    if resident := status_bytes("VmRSS"):
        held["host_memory"] = float(resident)
    return held


def status_bytes(field: str) -> int | None:
    """Return a number of bytes from Linux's status of this process, such as VmRSS or VmHWM; None where missing."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    found = [line.split() for line in lines if line.startswith(f"{field}:")]
    return int(found[0][1]) * 1024 if found else None
