"""`ManyDevices`: a config over many devices: memory, traffic, balance and step time, from the run's own ids.

No device is needed for it: the ids of a real batch are routed as that many devices would route them.

A step of one device, in seconds::

    rows     = fullest owner over the mean * (rows looked up and touched by one device) at the rate of the memory
    ordered  = (activations, gradients, batch of one device) / copy rate + 2 * dense state / copy rate
    inside   = bytes to devices of the same process / link
    between  = bytes to other processes, of all devices of a process / network
    dense    = 2 * (n - 1) / n * bytes of dense gradients over the slower of the two
    step     = rows + ordered + max(inside, between) + dense + collectives * latency

The model's arithmetic is extra, and divides by the number of devices.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any, Final

import numpy as np

from sparrow.config import Config, ConfigError, Problem, train_pipeline
from sparrow.data import without_presence
from sparrow.embedding import Sizes, imagined_mesh
from sparrow.feed import filled
from sparrow.planning.planning import Plan
from sparrow.planning.sizes import TableSize
from sparrow.runs import Program

COLLECTIVES: Final = 3
"""All-to-alls of a stack in a step."""


@dataclasses.dataclass(frozen=True)
class Links:
    """Rates of a cluster.

    Attributes:
      link: bytes per second that a device sends to devices of its own process.
      network: bytes per second that a process sends to others.
      latency: seconds that a collective takes besides its bytes.
      memory: bytes per second that a device reads and writes; None: as measured on this machine.
    """

    link: float = 50e9
    network: float = 12.5e9
    latency: float = 50e-6
    memory: float | None = None


@dataclasses.dataclass(frozen=True)
class StackTraffic:
    """The exchange of one stack in one batch.

    Attributes:
      exchange: "pooled" or "rows".
      room: vectors of each pair of devices, padding included.
      sent: bytes that a device sends in a step: ids, values and gradients.
      fullest: the fullest pair of devices over the mean.
      owners: the fullest owner over the mean.
      padding: the share of the values sent that is padding.
    """

    exchange: str
    room: int
    sent: int
    fullest: float
    owners: float
    padding: float


@dataclasses.dataclass(frozen=True)
class ManyDevices:
    """A run over ``devices`` devices of ``processes`` processes.

    Attributes:
      devices, processes: their numbers.
      tables: bytes of tables and slots on a device.
      state: bytes of dense parameters and the rest, on every device.
      work: bytes of activations, gradients and batches on a device, and of the exchange.
      stacks: the exchange, by stack.
      inside, between: bytes that a device sends in a step to devices of its process, and to others.
      dense: bytes that a device sends for the sum of dense gradients.
      rows_seconds, ordered_seconds, exchange_seconds, dense_seconds, latency_seconds: the parts of a step.
      links: the rates that it was computed with.
    """

    devices: int
    processes: int
    tables: int
    state: int
    work: int
    stacks: dict[str, StackTraffic]
    inside: int
    between: int
    dense: int
    rows_seconds: float
    ordered_seconds: float
    exchange_seconds: float
    dense_seconds: float
    latency_seconds: float
    links: Links

    @property
    def memory(self) -> int:
        """Bytes on each device."""
        return self.tables + self.state + self.work

    @property
    def sent(self) -> int:
        """Bytes that a device sends in a step."""
        return self.inside + self.between + self.dense

    @property
    def seconds(self) -> float:
        """Seconds of a step, without the model's arithmetic."""
        parts = (self.rows_seconds, self.ordered_seconds, self.exchange_seconds, self.dense_seconds)
        return sum(parts) + self.latency_seconds

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {**dataclasses.asdict(self), "memory": self.memory, "sent": self.sent, "seconds": self.seconds}


def spread(config: Config, plan: Plan, devices: int, processes: int = 1, links: Links | None = None) -> ManyDevices:
    """Return the plan of one device, spread over many. Raises `ConfigError` for numbers that do not fit."""
    links = links or Links()
    _refuse(config, devices, processes)
    program = Program.of(_alone(config))
    stacks = _traffic(config, program, devices)
    each = devices // processes
    sent = sum(stack.sent for stack in stacks.values())
    inside = round(sent * (each - 1) / max(devices - 1, 1))
    between = sent - inside
    params = plan.state.get("dense parameters", 0)
    dense = round(2 * params * (devices - 1) / devices)
    owners = max((stack.owners for stack in stacks.values()), default=1.0)
    machine, state = plan.machine, sum(plan.state.values())
    batches = plan.batches * plan.batch
    ordered = max(plan.moved.ordered - 2 * state, 0) / devices + 2 * state
    slowest = links.link if processes == 1 else min(links.link, links.network / each)
    scattered = plan.scattered_seconds if links.memory is None else plan.moved.scattered / links.memory
    exchanged = max(inside / links.link, between * each / links.network)
    return ManyDevices(
        devices=devices,
        processes=processes,
        tables=sum(_table_bytes(program, plan.tables, devices).values()),
        state=state,
        work=(plan.work + batches) // devices + 3 * sent,
        stacks=stacks,
        inside=inside,
        between=between,
        dense=dense,
        rows_seconds=owners * scattered / devices,
        ordered_seconds=ordered / (links.memory or machine.copy_rate),
        exchange_seconds=exchanged,
        dense_seconds=dense / slowest,
        latency_seconds=(COLLECTIVES * len(stacks) + min(devices - 1, 2)) * links.latency,
        links=links,
    )


def _refuse(config: Config, devices: int, processes: int) -> None:
    problems = []
    if devices % processes:
        text = f"{devices} devices cannot be shared evenly by {processes} processes; give a multiple of {processes}"
        problems.append(Problem(("devices",), text))
    if config.train.batch_size % devices:
        text = f"{config.train.batch_size} examples cannot be split evenly over {devices} devices"
        problems.append(Problem(("train", "batch_size"), f"{text}; give a multiple of {devices}"))
    if problems:
        raise ConfigError(problems)


def _alone(config: Config) -> Config:
    return config.model_copy(update={"train": config.train.model_copy(update={"mesh": None})})


def _traffic(config: Config, program: Program, devices: int) -> dict[str, StackTraffic]:
    """Route a batch of the run's data."""
    if devices == 1:
        return {}
    mesh = imagined_mesh(program.embedder, devices)
    with contextlib.closing(iter(train_pipeline(config))) as batches:  # type: ignore[type-var]
        batch = next(batches)
    ids, _ = filled(batch.ids, devices)
    lookups = {name: without_presence(values) for name, values in program.assembly.lookups(ids).items()}
    measured = mesh.measure(lookups)
    room = Sizes().fit(mesh.settle(measured.needs))
    made = {}
    for name, traffic in mesh.traffic(measured, room).items():
        by_owner = traffic.vectors.sum(axis=0)
        owners = float(by_owner.max() / max(by_owner.mean(), 1e-9))
        made[name] = StackTraffic(
            traffic.exchange, traffic.room, traffic.sent, traffic.fullest, owners, traffic.padding
        )
    return made


def _table_bytes(program: Program, tables: tuple[TableSize, ...], devices: int) -> dict[str, int]:
    """Return the bytes of each stack on a device: rows are padded to blocks of ``devices``."""
    made: dict[str, int] = {}
    for stack in program.embedder.stacks:
        members = [table for table in tables if table.stack == stack.name]
        rows = sum(table.rows for table in members)
        row = sum(table.total for table in members) / max(rows, 1)
        local = rows if devices == 1 else -(-rows // (devices * devices)) * devices
        made[stack.name] = int(np.ceil(local * row)) + (4 * local if stack.step.stochastic and devices > 1 else 0)
    return made
