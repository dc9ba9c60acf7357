"""The caches of tables in host memory: batches of the run's own data, replayed through the planner."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import numpy as np

from sparrow.config import Config, train_pipeline
from sparrow.embedding import Plans, Sender, on_host, to_host
from sparrow.plan.sizes import TableSize
from sparrow.reports import size
from sparrow.runs import Program
from sparrow.runs.loop.staging import entries_of, groups_of

SECONDS: Final = 5.0
"""Time that the replay may take."""
STEPS: Final = 400
PROBE: Final = 64 << 20
ROOM: Final = 0.9
"""The share of the free device memory that caches may be advised to take."""


@dataclasses.dataclass(frozen=True)
class Caches:
    """The work of a step on the caches, over the second half of the steps that were replayed.

    Attributes:
      rows: the rows on the device, by table.
      device, host: bytes of the caches, and of the tables in host memory.
      replayed: steps that were replayed.
      hits: the share of lookups whose rows were on the device.
      unique: distinct rows of a step.
      bytes_in, bytes_out: bytes of rows and slots to and from the device, a step.
      planning: seconds that planning a step takes on this machine.
      copying: seconds that its rows take within host memory.
      bus: seconds that they take to and from the device, both ways at once.
      problem: why the replay ended early; None: it did not.
    """

    rows: Mapping[str, int]
    device: int
    host: int
    replayed: int
    hits: float
    unique: float
    bytes_in: float
    bytes_out: float
    planning: float
    copying: float
    bus: float
    problem: str | None = None

    def bound(self, step: float) -> str:
        """Return the part that takes longest; ``step``: seconds of the step itself."""
        parts = {
            "the bus between host and device": self.bus,
            "the host's cores, which plan and copy rows": self.planning + self.copying,
            "the step itself": step,
        }
        return max(parts, key=parts.__getitem__)


def on_device(config: Config) -> Config:
    """Return the config with all tables on the device; the same one where they are."""
    if config.model is None or all(entry.memory is None for entry in config.model.tables):
        return config
    tables = tuple(entry.model_copy(update={"memory": None}) for entry in config.model.tables)
    return config.model_copy(update={"model": config.model.model_copy(update={"tables": tables})})


def replay(program: Program, config: Config, sizes: Mapping[str, TableSize]) -> Caches | None:
    """Plan the caches for batches of the data; no row is read or moved. None: all tables are on the device."""
    host = program.host
    if host is None:
        return None
    pipeline: Any = train_pipeline(config, program.preparer(use="train"))
    plans = Plans(host.stacks)
    first = {name: sizes[stack.logical.tables[0].name] for name, stack in host.stacks.items()}
    row_bytes = {name: table.total / table.rows for name, table in first.items()}
    window: list[Any] = []
    made: list[tuple[int, int, float, float, float]] = []  # lookups, distinct rows, rows that come, bytes in and out
    planning, problem = [], None
    began = time.perf_counter()
    with contextlib.closing(
        groups_of(pipeline, config.train.accumulate, min(config.train.steps or STEPS, STEPS))
    ) as groups:
        for number, step in enumerate(groups):
            given = [entries_of(host, batch.feed) for batch in step.batches]
            started = time.perf_counter()
            try:
                seen = plans.see(number, given)
            except ValueError as error:
                problem = str(error)
                break
            window.append((given, seen))
            spent = time.perf_counter() - started
            if len(window) > host.lookahead:
                oldest, (lookups, unique) = window.pop(0)
                started = time.perf_counter()
                moves = plans.admit(oldest)
                planning.append(spent + time.perf_counter() - started)
                coming = sum(len(of_stack.in_rows) for of_stack in moves.values())
                bytes_in = sum(row_bytes[name] * len(of_stack.in_rows) for name, of_stack in moves.items())
                bytes_out = sum(row_bytes[name] * len(of_stack.out_rows) for name, of_stack in moves.items())
                made.append((lookups, unique, coming, bytes_in, bytes_out))
            if time.perf_counter() - began > SECONDS:
                break
    half = made[len(made) // 2 :]
    means = [float(np.mean(column)) for column in zip(*half, strict=True)] if half else [0.0] * 5
    bus, copy = bus_rate(), copy_rate()
    caches = {table.name: table.vocabulary_size for stack in host.stacks.values() for table in stack.cached.tables}
    of_device = sum(sizes[name].total * rows // sizes[name].rows for name, rows in caches.items())
    return Caches(
        rows=caches,
        device=of_device,
        host=sum(sizes[name].total for name in caches),
        replayed=len(made),
        hits=1.0 - means[2] / means[0] if means[0] else 0.0,
        unique=means[1],
        bytes_in=means[3],
        bytes_out=means[4],
        planning=float(np.median(planning)) if planning else 0.0,
        copying=(means[3] + means[4]) / copy,
        bus=max(means[3], means[4]) / bus,
        problem=problem,
    )


def bus_rate() -> float:
    """Return the bytes a second of rows on their way to the device and back, the slower of both."""
    sender = Sender(jax.devices()[0])
    rates = []
    for _ in range(4):
        buffer = sender.buffer((PROBE // 512, 128), np.float32)
        buffer.values[:] = 1.0
        began = time.perf_counter()
        there = jax.block_until_ready(sender.send(buffer))  # type: ignore[no-untyped-call]
        middle = time.perf_counter()
        on_host(to_host(there))
        rates.append(PROBE / max(middle - began, time.perf_counter() - middle))
    return max(rates)


def copy_rate() -> float:
    """Return the bytes a second at which rows of 512 bytes are copied from anywhere in host memory, by one core."""
    array = np.zeros((PROBE // 512 * 4, 128), np.float32)
    rows = np.random.default_rng(0).integers(0, len(array), PROBE // 512)
    out = np.empty((len(rows), 128), np.float32)
    began = time.perf_counter()
    np.take(array, rows, axis=0, out=out)
    first = time.perf_counter()
    np.take(array, rows, axis=0, out=out)
    return PROBE / min(first - began, time.perf_counter() - first)


def lines_that_fit(tables: Sequence[TableSize], needed: int, free: int, *, on_disk: bool) -> list[str]:
    """Return lines for the config that keep the largest tables in host memory, or on disk, so that the rest fits.

    >>> one = TableSize("users", "users", 1000, 4, "float32", "SGD", 16_000, {})
    >>> lines_that_fit([one], 20_000, 12_000, on_disk=False)[2:]
    ['  tables:', '    - tables: [users]', '      memory: {kind: host, cache: 0.42}']
    """
    chosen, off = [], 0
    for table in sorted(tables, key=lambda table: -table.total):
        chosen.append(table)
        off += table.total
        if needed - off < ROOM * free * 0.75:
            break
    room = ROOM * free - (needed - off)
    share = math.floor(100 * room / off) / 100
    if share < 0.01:
        return []
    names = ", ".join(sorted(table.name for table in chosen))
    path = ", path: /a/large/disk" if on_disk else ""
    where = "on disk" if on_disk else "in host memory"
    return [
        f"to fit, keep {size(off)} of tables {where}, with caches of {share:.0%}:",
        "model:",
        "  tables:",
        f"    - tables: [{names}]",
        f"      memory: {{kind: host, cache: {share:g}{path}}}",
    ]
