"""`Costs`: the traffic, memory and balance of tables in given places, from their uses.

Bytes are counted by `sharding.traffic`. The capacity of a pair of devices is estimated: mean, a bound of its largest
deviation where a hash spreads rows, the hottest row, and the space that learned sizes leave. The places that are chosen
in the end are routed with real ids.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from sparrow.embedding.batches.sizes import HEADROOM, size_class
from sparrow.embedding.planner.uses import Use
from sparrow.embedding.sharding.measured import COPIES, DISTINCT, POOLED, ROWS, SUMS, chosen
from sparrow.embedding.sharding.placement import Place, everywhere, table_bytes
from sparrow.embedding.sharding.traffic import collectives, completed_bytes, copied_bytes, exchanged_bytes
from sparrow.embedding.specs import TableSpec
from sparrow.embedding.stacking import row_step, stack_tables

MEMORY_RATE: Final = 1e12
"""Bytes a second of a device's memory where `Links` has none."""
BALANCED: Final = 1.12
"""The limit of the fullest device over the mean, in memory and in lookups: a little below 1.15, as it is estimated."""
UNEVEN: Final = 20.0
"""The extra cost of a device with twice the mean: so much that a balanced placement wins wherever there is one."""
FULL: Final = 200.0
"""The extra cost of tables that need twice the memory of a device, or needlessly send twice the bytes of rows."""


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

    def shared(self, sent: float, devices: int, processes: int) -> tuple[int, int]:
        """Return the bytes of ``sent`` that go to devices of the same process, and to others.

        >>> Links().shared(7000, devices=8, processes=2)
        (3000, 4000)
        """
        inside = round(sent * (devices // processes - 1) / max(devices - 1, 1))
        return inside, round(sent) - inside

    def seconds(self, sent: float, devices: int, processes: int) -> float:
        """Return the time in which every device sends ``sent`` bytes to all others, evenly."""
        inside, between = self.shared(sent, devices, processes)
        return max(inside / self.link, between * (devices // processes) / self.network)


@dataclasses.dataclass(frozen=True)
class StackCost:
    """The tables that one exchange serves ("pooled", "rows" or "copies").

    Attributes:
      sent: bytes that a device sends in a step.
      memory: bytes on each device.
      padding: the share of the vectors sent that is padding.
      collectives: of a step.
    """

    tables: tuple[str, ...]
    exchange: str
    sent: int
    memory: int
    padding: float
    collectives: int


@dataclasses.dataclass(frozen=True)
class Cost:
    """A step of a device, and its memory, for tables in some places.

    Attributes:
      seconds: the exchange, its collectives, and rows at the fullest owner.
      memory: bytes of tables and slots on the fullest device; each allocates them.
      fullest: that, over the mean of the rows that are used.
      lookups: bytes of rows that the fullest device reads, over the mean.
      score: the seconds, more where devices are uneven or full, or more is sent than by rows with no such reason.
    """

    stacks: tuple[StackCost, ...]
    seconds: float
    memory: int
    fullest: float
    lookups: float
    score: float

    @property
    def sent(self) -> int:
        """Bytes that a device sends in a step."""
        return sum(stack.sent for stack in self.stacks)


_Made = tuple[StackCost, Any, Any]


class Costs:
    """The costs of placements of some tables on ``devices`` devices."""

    def __init__(
        self,
        tables: Sequence[TableSpec],
        uses: Mapping[str, Use],
        devices: int,
        processes: int = 1,
        links: Links | None = None,
        memory: int | None = None,
    ) -> None:
        """Take the tables and their uses; ``memory``: bytes of a device for tables and slots, None: not limited."""
        self.tables, self.uses = {table.name: table for table in tables}, uses
        self.devices, self.processes, self.links, self.memory = devices, processes, links or Links(), memory
        self.bytes = {table.name: table_bytes(table) for table in tables}
        self.steps = {table.name: row_step(table) for table in tables}
        stacks = stack_tables(tables, dynamic_alone=True)
        self._kinds = {table.name: stack.name for stack in stacks for table in stack.tables}
        self._loads: dict[tuple[str, int], Any] = {}
        self._kept: dict[Any, tuple[dict[str, Place], _Made]] = {}
        self._limit: int | None = None  # bytes that a device may send: of all tables by rows, where they are even
        by_rows = self.of(dict.fromkeys(self.tables, everywhere(devices)))
        if by_rows.score == by_rows.seconds:
            self._limit = by_rows.sent

    def weight(self, name: str) -> float:
        """Return the larger share that a table has of all memory, or of all lookups."""
        lookups = sum(self._use(other).entries for other in self.tables)
        return max(self.bytes[name] / max(sum(self.bytes.values()), 1), self._use(name).entries / max(lookups, 1e-9))

    def form(self, name: str, place: Place) -> tuple[Any, ...]:
        """Return a key that tables of one stack share, as `placement.stacked` has them."""
        return self._kinds[name], place.copies, place.columns, place.over if place.columns > 1 else 0

    def of(self, places: Mapping[str, Place]) -> Cost:
        """Return the cost of tables in these places."""
        return self._sum([self._stack(names, places) for names in self._stacks(places).values()])

    def of_forms(self, forms: Mapping[str, Place]) -> Cost:
        """Return the cost of tables in these forms, on the devices that `assigned` gives them."""
        return self._sum([self._assigned(names, forms)[1] for names in self._stacks(forms).values()])

    def assigned(self, forms: Mapping[str, Place]) -> dict[str, Place]:
        """Return the forms with devices, where the fullest device of each stack is the least full."""
        made: dict[str, Place] = {}
        for names in self._stacks(forms).values():
            made |= self._assigned(names, forms)[0]
        return {name: made[name] for name in forms}

    def _stacks(self, places: Mapping[str, Place]) -> dict[Any, list[str]]:
        stacks: dict[Any, list[str]] = {}
        for name, place in places.items():
            stacks.setdefault(self.form(name, place), []).append(name)
        return stacks

    def _assigned(self, names: list[str], forms: Mapping[str, Place]) -> tuple[dict[str, Place], _Made]:
        """Give each table of a stack its devices, the largest first; kept, as a search changes two stacks at a time."""
        key = (self.form(names[0], forms[names[0]]), *((name, forms[name].over) for name in names))
        if key not in self._kept:
            n = self.devices
            shares = {name: self.load(name, forms[name].over)[[7, 0, 1]] for name in names}  # rows, sums, lookups
            total = np.maximum(sum(own * forms[name].columns * forms[name].over for name, own in shares.items()), 1e-9)
            largest = {name: float((own / total).max()) for name, own in shares.items()}
            load, made = np.zeros((len(total), n)), {}
            for name in sorted(names, key=lambda name: (-forms[name].over, -largest[name])):
                form, each = forms[name], forms[name].columns * forms[name].over
                device = 0
                if not form.copies and each < n:
                    fullest = (load.max(axis=0) + largest[name]).reshape(n // each, each).max(axis=1)
                    device = int(fullest.argmin()) * each
                made[name] = form._replace(device=device)
                load[:, device : device + each] += (shares[name] / total)[:, None]
            self._kept[key] = made, self._stack(names, made)
        return self._kept[key]

    def _sum(self, stacks: list[_Made]) -> Cost:
        made = tuple(stack for stack, _, _ in stacks)
        read = sum((read for _, read, _ in stacks), np.zeros(self.devices))
        variance = sum(own for _, _, own in stacks)
        memory = sum(stack.memory for stack in made)
        used = sum(
            self.bytes[name] * (self.devices if stack.exchange == COPIES else 1)
            for stack in made
            for name in stack.tables
        )
        fullest = memory * self.devices / max(used, 1)
        most = float((read + _largest(self.devices) * np.sqrt(variance)).max())
        lookups = most / float(read.mean()) if read.any() else 1.0
        links, sent = self.links, sum(stack.sent for stack in made)
        seconds = links.seconds(sent, self.devices, self.processes)
        seconds += links.latency * sum(stack.collectives for stack in made)
        seconds += 3 * most / (links.memory or MEMORY_RATE)  # read once, and read and written once
        extra = UNEVEN * (max(fullest - BALANCED, 0.0) + max(lookups - BALANCED, 0.0))
        if self.memory is not None:
            extra += FULL * max(memory / self.memory - 1.0, 0.0)
        if self._limit is not None:
            extra += FULL * max(sent / max(self._limit, 1) - 1.0, 0.0)
        return Cost(made, seconds, memory, fullest, lookups, seconds * (1 + extra))

    def _stack(self, names: list[str], places: Mapping[str, Place]) -> _Made:
        """Return the cost of one stack; by device, the bytes of rows that it reads, and their variance."""
        first, n = places[names[0]], self.devices
        step, specs = self.steps[names[0]], [self.tables[name] for name in names]
        width, item = step.dim // first.columns, 2 if step.dtype == "bfloat16" else 4
        variance = np.zeros(n)
        if first.copies:
            rows = sum(spec.vocabulary_size for spec in specs)
            read = np.full(n, sum(self._use(name).entries for name in names) * width * item)
            sent = copied_bytes(n, rows, width)
            memory = sum(self.bytes[name] for name in names)
            return StackCost(tuple(names), COPIES, sent, memory, 0.0, collectives(step, n, 1, rows)), read, variance
        counts = np.zeros((10, n))  # by owner, as `load` has them
        hot = np.zeros(2)
        for name in names:
            place = places[name]
            load = self.load(name, place.over)
            counts[:, place.device : place.device + place.columns * place.over] += load[:, None]
            if place.over > 1:
                hot += np.maximum(self._use(name).hottest - load[:2], 0.0) ** 2
        hot = np.sqrt(hot)  # rows of different tables are seldom at one owner
        spread = 2 * math.log(n)
        most = counts[:3] + np.sqrt(2 * spread * counts[3:6]) + np.where(counts[3:6] > 0, spread / 3, 0)
        sums = float(np.minimum(most[0] + hot[0], counts[6]).max())
        distinct = float(np.minimum(most[2], counts[7]).max())
        ragged = any(self._use(name).ragged for name in names)
        by_rows = chosen({SUMS: math.ceil(sums), DISTINCT: math.ceil(distinct)}) == ROWS
        exchange, need = (ROWS, distinct) if by_rows else (POOLED, sums)
        pair = _capacity(need)
        if not by_rows:
            pair = min(pair, max(int(counts[6].max()), 1))
        entries = _capacity(float(most[1].max() + hot[1])) if ragged and not by_rows else 0
        weighted = any(self._use(name).weighted for name in names)
        sent = exchanged_bytes(exchange, n, width, pair, entries, weighted=weighted)
        sent += completed_bytes(step, n, first.columns, entries or pair)
        read = n * counts[2 if by_rows else 1] * width * item
        variance = counts[9 if by_rows else 8] * (width * item) ** 2
        per_row = sum(self.bytes[name] for name in names) / sum(spec.vocabulary_size for spec in specs)
        memory = round(float(counts[7].max()) * per_row / first.columns)
        padding = 1.0 - float(counts[2 if by_rows else 0].mean()) / max(pair, 1)
        cost = StackCost(tuple(names), exchange, sent, memory, padding, collectives(step, n, first.columns))
        return cost, read, variance

    def load(self, name: str, over: int) -> Any:
        """Return the numbers of a table on each of its devices, where the rows of a piece are over ``over`` of them.

        Of each device's part of a batch: sums, entries and distinct rows; the same where a hash spreads them; bags; the
        rows of the table; and the variances of the entries and distinct rows of all parts where a hash spreads them.
        """
        if (name, over) not in self._loads:
            use, rows = self._use(name), self.tables[name].vocabulary_size
            each = np.array([use.sums(over), use.entries, use.distinct]) / over
            local = -(-rows // (over * self.devices)) * self.devices
            uneven = np.maximum(np.array(use.squares) / over - (each[1:] * self.devices) ** 2 / rows, 0.0) * (over > 1)
            self._loads[name, over] = np.array([*each, *(each * (over > 1)), use.bags, local, *uneven])
        return self._loads[name, over]

    def _use(self, name: str) -> Use:
        return self.uses.get(name, _UNKNOWN)


_UNKNOWN: Final = Use(0, (0.0,), 0.0, (0.0, 0.0), False)
"""The placement of dynamic tables, which have no other."""


def _largest(count: int) -> float:
    """Return the largest of ``count`` normal deviates, as expected for large counts; 0 for one."""
    if count < 2:
        return 0.0
    root = math.sqrt(2 * math.log(count))
    return root - (math.log(math.log(count)) + math.log(4 * math.pi)) / (2 * root)


def _capacity(need: float) -> int:
    """Return the size that `Sizes` gives the first batch."""
    return size_class(math.ceil(HEADROOM[0] * math.ceil(need)), 16)
