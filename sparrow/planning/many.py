"""`ManyDevices`: a config over many devices: memory, traffic, balance and step time, from the run's own ids.

No device is needed for it: the ids of a real batch are routed as that many devices would route them.

A step of one device, in seconds::

    rows     = fullest device over the mean * (rows looked up and touched by one device) at the rate of the memory
    ordered  = (activations, gradients, batch of one device) / copy rate + 2 * dense state / copy rate
    inside   = bytes to devices of the same process / link
    between  = bytes to other processes, of all devices of a process / network
    dense    = 2 * (n - 1) / n * bytes of dense gradients over the slower of the two
    step     = rows + ordered + max(inside, between) + dense + collectives * latency

The model's arithmetic is extra, and divides by the number of devices.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from sparrow.config import Config, ConfigError, Problem, problems_of
from sparrow.embedding import Choice, Links, Placement, Sizes, choose_placement, imagined_mesh, kind_of
from sparrow.planning.planning import Plan, verdict, without_mesh
from sparrow.planning.sizes import TableSize
from sparrow.runs import Program
from sparrow.runs.loop.placing import fields_of, first_lookups


@dataclasses.dataclass(frozen=True)
class StackTraffic:
    """The exchange of one stack in one batch.

    Attributes:
      tables: their names.
      exchange: "pooled", "rows" or "copies".
      room: vectors of each pair of devices, padding included.
      sent: bytes that a device sends in a step: ids, values and gradients.
      fullest: the fullest pair of devices over the mean.
      owners: the fullest owner over the mean.
      padding: the share of the values sent that is padding.
    """

    tables: tuple[str, ...]
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
      placement: as ``train.mesh.placement`` takes it.
      alternatives: by table, the bytes that a device sends, and the seconds of the exchange, with the table in its own
        place and in other kinds of places; by kind, and under "" for its own.
      by_rows: bytes that a device sends with all tables by rows, and seconds, as estimated.
      tables: bytes of tables and slots on a device.
      used: by device, bytes of the rows and slots that it has.
      read: by device, bytes of the rows that it looks up.
      state: bytes of dense parameters and the rest, on every device.
      work: bytes of activations, gradients and batches on a device, and of the exchange.
      stacks: the exchange, by stack.
      inside, between: bytes that a device sends in a step to devices of its process, and to others.
      dense: bytes that a device sends for the sum of dense gradients.
      rows_seconds, ordered_seconds, exchange_seconds, dense_seconds, latency_seconds: the parts of a step.
      free: bytes free on a device here; None: not known, or the memory of the host, which all share.
      links: the rates that it was computed with.
    """

    devices: int
    processes: int
    placement: Any
    alternatives: dict[str, dict[str, tuple[int, float]]]
    by_rows: tuple[int, float]
    tables: int
    used: tuple[int, ...]
    read: tuple[int, ...]
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
    free: int | None
    links: Links

    @property
    def memory(self) -> int:
        """Bytes on each device."""
        return self.tables + self.state + self.work

    @property
    def fits(self) -> str:
        """Whether they fit, in words."""
        return verdict("each device", self.memory, self.free)

    @property
    def fullest(self) -> tuple[float, float]:
        """The fullest device over the mean, in memory and in lookups."""
        used, read = (max(own) / max(sum(own) / len(own), 1e-9) for own in (self.used, self.read))
        return used, read

    @property
    def padding(self) -> float:
        """The share of the bytes of the exchange that is padding, of stacks that have it."""
        sent = sum(stack.sent for stack in self.stacks.values())
        return sum(stack.padding * stack.sent for stack in self.stacks.values()) / max(sent, 1)

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
        derived = {name: getattr(self, name) for name in ("memory", "fits", "sent", "seconds")}
        return dataclasses.asdict(self) | derived


def spread(config: Config, plan: Plan, devices: int, processes: int = 1, links: Links | None = None) -> ManyDevices:
    """Return the plan of one device, spread over many. Raises `ConfigError` for numbers that do not fit.

    Tables are where ``train.mesh.placement`` puts them; "auto", or a mesh of another number of devices: they are placed
    by the planner, for these rates and the memory of a device here.
    """
    links = links or Links()
    _refuse(config, devices, processes)
    program = Program.of(without_mesh(config))
    lookups = first_lookups(config, program.assembly, devices)
    given: Any = (
        "auto" if config.train.mesh is None or config.train.mesh.data != devices else config.train.mesh.placement
    )
    free = min((place.free for place in plan.machine.devices if place.free is not None), default=None)
    room = None if free is None else max(free - sum(plan.state.values()) - plan.work, 1)
    choice = choose_placement(program.embedder, lookups, devices, processes, links, room) if devices > 1 else None
    if given == "auto":
        given = "rows" if choice is None else choice.placements
    with problems_of("train", "mesh", "placement"):
        mesh = imagined_mesh(program.embedder, devices, "auto", given, processes)
    stacks, read, collectives = _traffic(mesh, lookups) if devices > 1 else ({}, np.ones(1), 0)
    each = devices // processes
    inside, between = links.shared(sum(stack.sent for stack in stacks.values()), devices, processes)
    params = plan.state.get("dense parameters", 0)
    dense = round(2 * params * (devices - 1) / devices)
    owners = float(read.max() / max(read.mean(), 1e-9))
    machine, state = plan.machine, sum(plan.state.values())
    batches = plan.batches * plan.batch
    ordered = max(plan.moved.ordered - 2 * state, 0) / devices + 2 * state
    slowest = links.link if processes == 1 else min(links.link, links.network / each)
    scattered = plan.scattered_seconds if links.memory is None else plan.moved.scattered / links.memory
    return ManyDevices(
        devices=devices,
        processes=processes,
        placement=given if isinstance(given, str) else fields_of(_records(given)),
        alternatives={} if choice is None else {name: _alternatives(choice, name) for name in choice.places},
        by_rows=(0, 0.0) if choice is None else (choice.by_rows.sent, choice.by_rows.seconds),
        tables=_allocated(mesh, plan.tables, devices),
        used=_used(mesh, plan.tables, devices),
        read=tuple(map(int, read)),
        state=state,
        work=(plan.work + batches) // devices + 3 * (inside + between),
        stacks=stacks,
        inside=inside,
        between=between,
        dense=dense,
        rows_seconds=owners * scattered / devices,
        ordered_seconds=ordered / (links.memory or machine.copy_rate),
        exchange_seconds=links.seconds(inside + between, devices, processes),
        dense_seconds=dense / slowest,
        latency_seconds=(collectives + min(devices - 1, 2)) * links.latency,
        free=free,
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


def _records(given: Mapping[str, str | Placement]) -> dict[str, Placement]:
    return {name: Placement(own) if isinstance(own, str) else own for name, own in given.items()}  # type: ignore[arg-type]


def _alternatives(choice: Choice, table: str) -> dict[str, tuple[int, float]]:
    made = {kind: (cost.sent, cost.seconds) for kind, cost in choice.alternatives[table].items()}
    own = kind_of(choice.places[table], choice.devices)
    return {"": (choice.cost.sent, choice.cost.seconds)} | {kind: cost for kind, cost in made.items() if kind != own}


def _traffic(mesh: Any, lookups: Mapping[str, Any]) -> tuple[dict[str, StackTraffic], Any, int]:
    """Route a batch: the exchange by stack, the bytes of rows that each device reads, and the collectives of a step."""
    measured = mesh.measure(lookups)
    capacity = Sizes().fit(mesh.settle(measured.needs))
    tables = {stack.name: stack for stack in mesh.stacks}
    made, read, collectives = {}, np.zeros(mesh.shards.count), 0
    for name, traffic in mesh.traffic(measured, capacity).items():
        routed, layout, stack = measured.routed[name], mesh.layouts[name], tables[name]
        by_owner = traffic.vectors.sum(axis=0)
        if traffic.exchange == "pooled":
            by_owner = sum(route.entries for route in routed.pooled)
        width = stack.dim // layout.columns * (2 if stack.step.dtype == "bfloat16" else 4)
        own = np.array([len(part.ids) for part in routed.parts]) if layout.copies else by_owner
        read += own * width
        owners = float(own.max() / max(own.mean(), 1e-9))
        names = tuple(table.name for table in stack.tables)
        collectives += traffic.collectives
        made[name] = StackTraffic(
            names, traffic.exchange, traffic.room, traffic.sent, traffic.fullest, owners, traffic.padding
        )
    return made, read, collectives


def _bytes_of_rows(mesh: Any, tables: tuple[TableSize, ...]) -> dict[str, float]:
    """Return the bytes of a row and its slots, by stack; of a piece of it where rows are cut."""
    sizes = {table.name: table for table in tables}
    made = {}
    for stack in mesh.stacks:
        own = [sizes[table.name] for table in stack.tables]
        made[stack.name] = sum(table.total for table in own) / max(sum(table.rows for table in own), 1)
        made[stack.name] /= mesh.layouts[stack.name].columns
    return made


def _allocated(mesh: Any, tables: tuple[TableSize, ...], devices: int) -> int:
    """Return the bytes of tables and slots on each device, rows that are not used included."""
    if devices == 1:
        return sum(table.total for table in tables)
    rows, steps = _bytes_of_rows(mesh, tables), {stack.name: stack.step for stack in mesh.stacks}
    numbers = {name: 4 if steps[name].stochastic else 0 for name in rows}
    return sum(math.ceil(mesh.layouts[name].local_rows * (rows[name] + numbers[name])) for name in rows)


def _used(mesh: Any, tables: tuple[TableSize, ...], devices: int) -> tuple[int, ...]:
    """Return the bytes of the rows that each device has."""
    sizes = {table.name: table.total for table in tables}
    used = np.zeros(devices)
    for name, place in mesh.places.items():
        if place.copies:
            used += sizes[name]
        else:
            each = place.columns * place.over
            used[place.device : place.device + each] += sizes[name] / each
    return tuple(map(int, used))
