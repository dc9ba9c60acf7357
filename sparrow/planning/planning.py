"""`plan`: the memory and speed of a config on this machine, before it runs.

The rates of the machine are measured in a second or two, on arrays beyond the caches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.config import Config, train_pipeline
from sparrow.embedding import Embedder, EmbeddingState, FeatureSpec, PackedBatch, TableSpec
from sparrow.feed import Feed, Pipeline, Prepared, Preparer, alike
from sparrow.files import AnyPath
from sparrow.planning.advice import advice, lines_that_fit
from sparrow.planning.sizes import Movement, Rehearsal, TableSize, movement, size_of, startup_peak, table_sizes
from sparrow.reports import size
from sparrow.rules import SGD
from sparrow.runs import Program, as_config
from sparrow.runs.feed_times import feed_seconds
from sparrow.runs.loop.set_up import length
from sparrow.runs.recorded.traffic import Traffic
from sparrow.runs.step.in_flight import MOST
from sparrow.runs.step.memory import Memory, device_memory, host_memory

PROBE_BYTES: Final = 128 * 2**20
PROBE_ROWS: Final = 100_000
BAG: Final = 50
REPEATS: Final = 3


@dataclasses.dataclass(frozen=True)
class Machine:
    """Memory and rates.

    Attributes:
      platform: of JAX: "cpu", "gpu" or "tpu".
      host: its memory.
      devices: theirs; empty on a CPU, where tables are in the host's memory.
      copy_rate: bytes per second, read and written, of a multiplication over a large array, in place.
      row_seconds: the time of a lookup of one random row, by the bytes of the row.
    """

    platform: str
    host: Memory
    devices: tuple[Memory, ...]
    copy_rate: float
    row_seconds: dict[int, float]


def machine(row_bytes: Iterable[int]) -> Machine:
    """Look and measure; ``row_bytes``: the sizes of rows that matter."""
    host, devices = host_memory(), device_memory()
    free = min([place.free for place in (host, *devices) if place.free is not None], default=8 * PROBE_BYTES)
    dims = {size: max(size // 4, 1) for size in sorted(set(row_bytes))}
    numbers = int(min(PROBE_BYTES, free // 8)) // 4
    together = math.lcm(
        *dims.values()
    )  # one array serves tables of all these dims, where its size is a multiple of each
    shared = jnp.ones(max(numbers // together, 1) * together) if together <= numbers else None
    rates = {
        size: row_seconds(jnp.ones(max(numbers // dim, 1) * dim) if shared is None else shared, dim)
        for size, dim in dims.items()
    }
    return Machine(
        jax.default_backend(), host, devices, copy_rate(jnp.ones(numbers) if shared is None else shared), rates
    )


def copy_rate(array: jax.Array) -> float:
    """Return the bytes per second that the default device reads and writes. The array is donated."""
    held = [array]
    multiply = jax.jit(lambda x: x * 1.5, donate_argnums=0)  # in place: pages that are new would cost more than moving

    def once() -> jax.Array:
        held.append(multiply(held.pop()))
        return held[0]

    return 2 * array.nbytes / _best(once)


def row_seconds(array: jax.Array, dim: int) -> float:
    """Return the seconds per random row, by the lookup of the backend that tables use here.

    Rows are looked up in bags of `BAG`, so that it is the reading that counts. ``array``: the numbers of a table.
    """
    rows = array.size // dim
    spec = TableSpec(name="probe", vocabulary_size=rows, embedding_dim=dim, optimizer=SGD(0.0))
    embedder = Embedder([FeatureSpec(name="probe", table_spec=spec)])
    ids = np.random.default_rng(0).integers(0, rows, (PROBE_ROWS // BAG, BAG))
    packed = jax.device_put(embedder.pack({"probe": ids}))

    def lookup(array: jax.Array, packed: PackedBatch) -> dict[str, jax.Array]:
        zero = jnp.zeros((), jnp.int32)
        table = array.reshape(rows, dim)
        state = EmbeddingState(zero, zero, {embedder.stacks[0].name: table}, {}, {})
        acts: dict[str, jax.Array] = embedder.lookup(state, packed)
        return acts

    return _best(jax.jit(lookup), array, packed) / ids.size


def _best(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the shortest of a few runs, without the first, which compiles."""
    jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        jax.block_until_ready(function(*arguments))  # type: ignore[no-untyped-call]
        seconds.append(time.perf_counter() - began)
    return min(seconds)


MORE: Final = 16
"""Batches that are made besides the first step's, to time the feed."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """The needs of a run.

    Attributes:
      tables: each with its slots.
      backends: by stack.
      state: bytes of everything else that a step changes, by what it is.
      work: bytes of activations, gradients and work space of a step.
      batch: bytes of a packed batch.
      batches: how many of them are held at once.
      startup: bytes at the peak of drawing the tables' first values.
      counters: bytes on the host that counting lookups takes.
      process: bytes that the process takes besides all of the above, measured in a rehearsal with small tables.
      starting: the same before there are batches and steps, when the first values are drawn.
      moved: the bytes that a step moves.
      machine: where it was planned.
      feed: seconds that reading and packing a step's batches take, measured.
      steps: that the run makes; None: not known.
      advice: changes that would make it smaller.
    """

    tables: tuple[TableSize, ...]
    backends: dict[str, str]
    state: dict[str, int]
    work: int
    batch: int
    batches: int
    startup: int
    counters: int
    process: int
    starting: int
    moved: Movement
    machine: Machine
    feed: float
    steps: int | None
    advice: tuple[str, ...]

    @property
    def held(self) -> int:
        """Bytes of tables, slots, parameters and the rest of the state, held all the time on the device."""
        return sum(table.total for table in self.tables) + sum(self.state.values())

    @property
    def training(self) -> int:
        """Bytes on the device at the peak of a step."""
        return self.held + self.work + self.batches * self.batch

    @property
    def peak(self) -> int:
        """Bytes on the device at the peak of the run: of a step, or of drawing the first values."""
        return max(self.training, self.startup)

    @property
    def host(self) -> int:
        """Bytes of the process at its peak; on a CPU the tables are part of it."""
        if self.machine.devices:
            apart = sum(table.host for table in self.tables)
            return self.process + self.counters + self.batches * self.batch + apart
        return self.counters + max(self.process + self.training, self.starting + self.startup)

    @property
    def seconds(self) -> float:
        """The time of a step's movement at this machine's rates."""
        return self.scattered_seconds + self.moved.ordered / self.machine.copy_rate

    @property
    def scattered_seconds(self) -> float:
        """The part of it that rows and slots take."""
        rate = self.machine.row_seconds
        return sum(
            table.lookups * rate[table.row]
            + 2 * table.touched * (rate[table.row] + sum(rate[slot] for slot in table.slots))
            for table in self.moved.tables.values()
        )

    @property
    def bound(self) -> str:
        """Whether the feed or the step bounds the run, in words."""
        if self.feed > self.seconds:
            return "the feed, unless the model's own computation takes longer: see `sparrow feed`"
        return "the step: batches are made faster than it moves its bytes"

    def fits(self) -> list[str]:
        """Return a line for each device and the host: whether the run fits."""
        places = [(place, self.peak) for place in self.machine.devices] + [(self.machine.host, self.host)]
        return [verdict(place.name, needed, place.free) for place, needed in places]

    def lines(self) -> list[str]:
        """Return the lines to put into the config where the tables do not fit; none where they do."""
        device = next((place for place in self.machine.devices if place.free is not None), None)
        if device is None or device.free is None or self.peak <= device.free:
            return []
        return lines_that_fit(self.tables, self.peak, device.free)

    def to_dict(self) -> dict[str, Any]:
        return {
            **dataclasses.asdict(self),
            **{name: getattr(self, name) for name in ("held", "training", "peak", "host", "bound")},
            "bytes_per_step": self.moved.total,
            "seconds_per_step": self.seconds,
            "feed_seconds_per_step": self.feed,
            "lines": self.lines(),
            "fits": self.fits(),
        }


def verdict(place: str, needed: int, free: int | None) -> str:
    """Return whether a place has the bytes that are needed, in words.

    >>> verdict("host", 3_000_000, 2_000_000)
    'host: 3 MB of 2 MB free, does not fit: 1 MB too much'
    """
    if free is None:
        return f"{place}: {size(needed)} needed; the free memory is not known"
    end = "fits" if needed <= free else f"does not fit: {size(needed - free)} too much"
    return f"{place}: {size(needed)} of {size(free)} free, {end}"


def plan(config: Config | Mapping[str, Any] | str | AnyPath) -> Plan:
    """Plan a run on one device: read a step's batches, rehearse it, measure this machine; see `spread` for meshes.

    No table is made in its size.

    Args:
      config: a `Config`, a mapping, or the path of a file, as `sparrow.runs.train` takes it.
    """
    config = without_mesh(as_config(config))
    pipeline = train_pipeline(config)
    config, steps, _ = length(config, pipeline)
    program = Program.of(config)
    pipeline.prepare = preparer = program.preparer(use="train")
    state = jax.eval_shape(program.init)
    rehearsal = Rehearsal(program, state)
    with contextlib.closing(iter(pipeline)) as batches:  # type: ignore[type-var]
        feed_of_row, feeds = _first_feeds(batches, pipeline, preparer, config.train.accumulate)
        rehearsal.train(feeds)  # before all else, and while rows that were read ahead are held
    optimizer = state.optimizer
    tables = table_sizes(program.embedder, optimizer.embedding)
    startup = startup_peak(program, optimizer.embedding)
    moved = movement(program, state, feeds, {table.name: table for table in tables})
    parts = {
        "maps of ids and caches": (optimizer.embedding.ids, optimizer.embedding.caches),
        "dense parameters": optimizer.params,
        "optimizer state of dense parameters": optimizer.dense,
        "average of dense parameters": optimizer.ema,
        "rest of the model": state.rest,
        "metrics of training": state.metrics,
    }
    others = {name: size_of(part) for name, part in parts.items()}
    counters = Traffic(program.embedder, config.train.traffic).nbytes if config.train.traffic else 0
    held = sum(table.total for table in tables) + sum(others.values())
    return Plan(
        tables=tuple(tables),
        backends={stack.name: program.embedder.backend_of(stack.tables[0].name) for stack in program.embedder.stacks},
        state={name: count for name, count in others.items() if count},
        work=rehearsal.work,
        batch=sum(feed.nbytes for feed in feeds),
        batches=MOST + 1 + pipeline.batches_ahead,
        startup=startup,
        counters=counters,
        process=rehearsal.process,
        starting=rehearsal.starting,
        moved=moved,
        machine=machine({size for table in tables for size in table.row_sizes}),
        feed=feed_of_row * config.train.batch_size * config.train.accumulate,
        steps=steps,
        advice=tuple(advice(list(program.embedder.tables.values()), held, moved, steps)),
    )


def without_mesh(config: Config) -> Config:
    """Return the config of the same run on one device."""
    return config.model_copy(update={"train": config.train.model_copy(update={"mesh": None})})


def _first_feeds(
    batches: Iterator[Prepared], pipeline: Pipeline[Any], preparer: Preparer, count: int
) -> tuple[float, tuple[Feed, ...]]:
    """Return the seconds that a row takes from files to the device, and the batches of the first step.

    Nothing else happens meanwhile: the threads that make batches have this process for themselves.
    """
    began = time.perf_counter()
    taken = [prepared.feed for prepared in itertools.islice(batches, count)]
    deque(itertools.islice(batches, MORE), maxlen=0)  # the very first batches take longer than others
    return feed_seconds(pipeline, preparer, time.perf_counter() - began), alike(preparer.embedder, taken)
