"""The environment of a run, in environment.json for its report: versions, machine, and sessions with their times."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax

from sparrow import processes
from sparrow.embedding import Embedder
from sparrow.reports import ENVIRONMENT, write_json
from sparrow.versions import versions


class Environment:
    """The file of one run folder. A run that is resumed adds a session to it."""

    def __init__(
        self, folder: Path, embedder: Embedder, step: int = 0, hashed: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        """Begin a session now, at ``step``. ``hashed``: the words and rows of hashed features."""
        self._path = folder / ENVIRONMENT
        sessions = _sessions(self._path) if step else []
        self._held: dict[str, Any] = {
            "sessions": [*sessions, {"began": time.time(), "step": step}],
            "machine": machine(embedder),
            "versions": versions(),
            "hashed": dict(hashed),
        }
        write_json(self._path, self._held)

    def end(self, how: str, exchange: Mapping[str, str] = MappingProxyType({})) -> None:
        """End the session: "finished", "stopped early", "interrupted"; with the traffic of a mesh, in words."""
        if exchange:
            self._held["exchange"] = dict(exchange)
        self._held["sessions"][-1]["ended"] = how
        write_json(self._path, self._held)


def machine(embedder: Embedder) -> dict[str, str]:
    """Return the facts about this machine, in words."""
    devices = jax.devices()
    kinds = sorted({device.device_kind for device in devices})
    backends = sorted({embedder.backend_of(table) for table in embedder.tables})
    return {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "processes": str(processes.count()),
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


def _sessions(path: Path) -> list[Any]:
    try:
        held = json.loads(path.read_text(encoding="utf-8"))["sessions"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return held if isinstance(held, list) else []
