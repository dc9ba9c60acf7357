"""The environment of a run, in environment.json for its report: versions, machine, sizes, epochs, and sessions."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from sparrow import processes
from sparrow.embedding import Embedder
from sparrow.files import json_object
from sparrow.reports import ENVIRONMENT, write_json
from sparrow.runs.loop.progress import Clock
from sparrow.runs.step.program import Program
from sparrow.versions import versions


class Environment:
    """The file of one run folder. A run that is resumed adds a session to it."""

    def __init__(self, folder: Path, program: Program, step: int, hashed: Mapping[str, Any]) -> None:
        """Begin a session now, at ``step``. ``hashed``: the words and rows of hashed features."""
        self._path = folder / ENVIRONMENT
        before = json_object(self._path) if step else {}
        ends = [end for end in _list(before, "epoch_ends") if end <= step]
        self._held: dict[str, Any] = {
            "sessions": [*_list(before, "sessions"), {"began": time.time(), "step": step}],
            "epoch_ends": ends,
            **{name: before[name] for name in ("training_rows", "evaluation_rows") if name in before},
            "model": sizes(program),
            "machine": machine(program.embedder),
            "versions": versions(),
            "hashed": dict(hashed),
        }
        write_json(self._path, self._held)

    def epoch_ended(self, step: int, examples: int | None) -> None:
        """Note that an epoch ended at ``step``, and its examples; None: this session did not see all of them."""
        if not self._held["epoch_ends"] or self._held["epoch_ends"][-1] < step:
            self._held["epoch_ends"].append(step)
        if examples is not None:
            self._held["training_rows"] = examples

    def write(self, **facts: Any) -> None:
        self._held |= facts
        write_json(self._path, self._held)

    def end(self, how: str, clock: Clock, exchange: Mapping[str, str]) -> None:
        """End the session: "finished", "stopped early: ..." or "interrupted"; ``exchange``: on a mesh, in words."""
        if exchange:
            self._held["exchange"] = dict(exchange)
        times = {name: round(value, 3) for name, value in clock.times.items()}
        self._held["sessions"][-1] |= {"ended": how, "seconds": times, "examples_per_second": round(clock.speed, 1)}
        write_json(self._path, self._held)


def sizes(program: Program) -> dict[str, int]:
    """Return the number of tables, of their rows, and of parameters inside and outside of tables."""
    tables = program.embedder.tables.values()
    return {
        "tables": len(tables),
        "table_rows": sum(table.vocabulary_size for table in tables),
        "table_parameters": sum(table.vocabulary_size * table.embedding_dim for table in tables),
        "dense_parameters": sum(leaf.size for leaf in jax.tree.leaves(program.fresh[0])),
    }


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


def _list(held: Mapping[str, Any], name: str) -> list[Any]:
    found = held.get(name)
    return found if isinstance(found, list) else []
