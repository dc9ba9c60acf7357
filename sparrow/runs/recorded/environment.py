"""What a run ran on: versions, machine, and when it was worked on; kept in environment.json for its report."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import jax

from sparrow.embedding import Embedder
from sparrow.reports import ENVIRONMENT, write_json
from sparrow.versions import versions


class Environment:
    """The file of one run folder. A run that goes on after a stop adds a sitting to it."""

    def __init__(self, folder: Path, embedder: Embedder, step: int = 0) -> None:
        """Note that work begins now, at ``step``."""
        self._path = folder / ENVIRONMENT
        sittings = _sittings(self._path) if step else []
        self._held: dict[str, Any] = {
            "sittings": [*sittings, {"began": time.time(), "step": step}],
            "machine": machine(embedder),
            "versions": versions(),
        }
        write_json(self._path, self._held)

    def end(self, how: str) -> None:
        """Note that work ended: "finished", "stopped early", "interrupted"."""
        self._held["sittings"][-1]["ended"] = how
        write_json(self._path, self._held)


def machine(embedder: Embedder) -> dict[str, str]:
    """In words."""
    devices = jax.devices()
    kinds = sorted({device.device_kind for device in devices})
    backends = sorted({embedder.backend_of(table) for table in embedder.tables})
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "devices": f"{len(devices)} x {', '.join(kinds)} ({jax.default_backend()})",
        "kernels": ", ".join(backends),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _sittings(path: Path) -> list[Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))["sittings"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return held if isinstance(held, list) else []
