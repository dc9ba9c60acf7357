"""Plans as tables, for a terminal: of one device, and of many."""

from __future__ import annotations

from typing import Any, Final

from rich.box import SIMPLE
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sparrow.planning.many import ManyDevices
from sparrow.planning.planning import Plan
from sparrow.planning.sizes import TableSize
from sparrow.reports import duration, size

SHOWN: Final = 16
"""The devices that have a line of their own."""


def show(plan: Plan, console: Console | None = None) -> None:
    """Print the plan of one device."""
    parts: list[RenderableType] = [
        _tables(plan),
        _stacks(plan),
        _memory(plan),
        _step(plan),
        _lines("What fits", plan.fits()),
    ]
    if lines := plan.lines():
        parts.append(_lines("Lines for the config", lines))
    if plan.advice:
        parts.append(_lines("Advice", plan.advice))
    (console or Console()).print(Group(*parts))


def _tables(plan: Plan) -> Table:
    table = _new_table("Tables", "table", "shape", "rule and slots", "values", "slots", "total")
    alike: dict[Any, list[TableSize]] = {}
    for one in plan.tables:
        alike.setdefault((one.rows, one.dim, one.dtype, one.rule, tuple(one.slots.items())), []).append(one)
    for one, *others in alike.values():
        rule = f"{one.rule} ({', '.join(one.slots)})" if one.slots else one.rule
        slots = sum(one.slots.values())
        shape = f"{one.rows:,} x {one.dim} {one.dtype}"
        table.add_row(one.name, shape, rule, size(one.values), size(slots), size(one.total))
        if others:
            names = f"  and {len(others)} more, to {others[-1].name}"
            count = len(others)
            table.add_row(names, "the same", "", *(size(count * x) for x in (one.values, slots, one.total)))
    if len(plan.tables) > 1:
        values, total = (sum(getattr(one, field) for one in plan.tables) for field in ("values", "total"))
        table.add_section()
        cells = (f"{sum(one.rows for one in plan.tables):,} rows", "", size(values), size(total - values))
        table.add_row(f"all {len(plan.tables)}", *cells, size(total), style="bold")
    return table


def _stacks(plan: Plan) -> Table:
    """Return the arrays that tables live in."""
    table = _new_table("Stacks", "stack", "tables", "shape", "kernels", "total")
    for name, backend in plan.backends.items():
        members = [one for one in plan.tables if one.stack == name]
        shape = f"{sum(one.rows for one in members):,} x {members[0].dim} {members[0].dtype}"
        table.add_row(name, str(len(members)), shape, backend, size(sum(one.total for one in members)))
    return table


def _memory(plan: Plan) -> Table:
    table = _new_table("Memory", "what", "bytes")
    table.add_row("tables and their slots", size(sum(one.total for one in plan.tables)))
    for name, count in plan.state.items():
        table.add_row(name, size(count))
    table.add_row("a step's activations, gradients and work space", size(plan.work))
    table.add_row(f"{plan.batches} packed batches of {size(plan.batch)}", size(plan.batches * plan.batch))
    table.add_section()
    table.add_row("peak of a step", size(plan.training), style="bold")
    table.add_row("peak while tables get their first values", size(plan.startup), style="bold")
    table.add_section()
    table.add_row("program and libraries, in a rehearsal", size(plan.process))
    if plan.counters:
        table.add_row("counting lookups (train.traffic)", size(plan.counters))
    table.add_row("peak of the process on the host", size(plan.host), style="bold")
    return table


def _step(plan: Plan) -> Table:
    moved, machine = plan.moved, plan.machine
    table = _new_table("A step", "what", "")
    lookups = sum(one.lookups for one in moved.tables.values())
    touched = sum(one.touched for one in moved.tables.values())
    table.add_row("rows looked up, and different ones among them", f"{lookups:,}, {touched:,}")
    table.add_row("bytes of rows and slots to move", size(moved.scattered))
    table.add_row("other bytes to move", size(moved.ordered))
    table.add_row("time that moving takes here", duration(plan.seconds), style="bold")
    table.add_row("time that making its batches takes here", duration(plan.feed), style="bold")
    table.add_row("so the run is bound by", plan.bound)
    if plan.steps:
        table.add_row(f"the same for {plan.steps:,} steps", duration(plan.steps * plan.seconds))
    table.add_section()
    table.add_row(f"measured: copying on {machine.platform}", f"{size(machine.copy_rate)}/s")
    for count, seconds in machine.row_seconds.items():
        table.add_row(f"measured: random rows of {size(count)}", f"{seconds * 1e9:.3g} ns each")
    return table


def _new_table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=SIMPLE, pad_edge=False)
    for index, column in enumerate(columns):
        is_number = bool(index) and column in ("tables", "values", "slots", "total", "bytes", "")
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    return table


def _lines(title: str, lines: list[str] | tuple[str, ...]) -> Group:
    return Group(Text(f"\n{title}", style="bold"), *(Padding(Text(line), (0, 0, 0, 2)) for line in lines))


def show_spread(spread: ManyDevices, console: Console | None = None) -> None:
    """Print the plan of many devices."""
    (console or Console()).print(
        Group(
            *(_placement(spread), _exchange(spread), _devices(spread), _device(spread), _step_of_device(spread)),
            _lines("What fits", [spread.fits]),
        )
    )


def _placement(spread: ManyDevices) -> Table:
    """Return the place of each table, and the least that another kind of place would cost."""
    sent, seconds = spread.by_rows
    title = f"Placement; all tables by rows: {size(sent)} sent by a device, {duration(seconds)}"
    table = _new_table(title, "table", "place", "sent by a device", "exchange", "with another place")
    given = spread.placement
    for name, costs in spread.alternatives.items():
        own = given if isinstance(given, str) else given.get(name, "rows")
        sent, seconds = costs[""]
        others = sorted((cost for cost in costs.items() if cost[0]), key=lambda cost: cost[1][1])
        words = "; ".join(f"{kind}: {size(more)}, {duration(time)}" for kind, (more, time) in others[:2])
        table.add_row(name, _words(own), size(sent), duration(seconds), words)
    return table


def _words(place: Any) -> str:
    if isinstance(place, str):
        return place
    return ", ".join([place["kind"], *(f"{key} {number}" for key, number in place.items() if key != "kind")])


def _devices(spread: ManyDevices) -> Table:
    """Return the rows of each device, or of the fullest ones."""
    memory, lookups = spread.fullest
    title = f"Devices; fullest over the mean: {memory:.2f} in memory, {lookups:.2f} in lookups"
    table = _new_table(title, "device", "rows and slots it has", "rows it looks up", "sends")
    order = sorted(range(spread.devices), key=lambda device: (-spread.used[device], -spread.read[device]))
    for device in sorted(order[:SHOWN]):
        sent = size(spread.inside + spread.between)
        table.add_row(str(device), size(spread.used[device]), size(spread.read[device]), sent)
    if spread.devices > SHOWN:
        table.add_row("others", f"{size(spread.used[order[-1]])} or more", "", "")
    return table


def _exchange(spread: ManyDevices) -> Table:
    title = f"Traffic of {spread.devices} devices in {spread.processes} processes"
    table = _new_table(title, "stack", "exchange", "sent by a device", "fullest pair", "fullest owner", "padding")
    for name, one in spread.stacks.items():
        name = f"{one.tables[0]} and {len(one.tables) - 1} more" if len(one.tables) > 1 else name
        shares = f"{one.fullest:.2f}", f"{one.owners:.2f}", f"{one.padding:.0%}"
        table.add_row(name, one.exchange, size(one.sent), *shares)
    return table


def _device(spread: ManyDevices) -> Table:
    table = _new_table("Memory of a device", "what", "bytes")
    table.add_row("tables and their slots", size(spread.tables))
    table.add_row("dense parameters and the rest of the state, on every device", size(spread.state))
    table.add_row("activations, batches, exchange and work space", size(spread.work))
    table.add_row("all", size(spread.memory), style="bold")
    return table


def _step_of_device(spread: ManyDevices) -> Table:
    links = spread.links
    table = _new_table("A step of a device", "what", "bytes sent", "")
    table.add_row("rows and slots, at the fullest owner", "", duration(spread.rows_seconds))
    table.add_row("activations, gradients, dense state", "", duration(spread.ordered_seconds))
    table.add_row(f"to devices of its process, {size(links.link)}/s", size(spread.inside), "")
    table.add_row(f"to other processes, {size(links.network)}/s for all devices of one", size(spread.between), "")
    table.add_row("exchange, the slower of both", "", duration(spread.exchange_seconds))
    table.add_row("sum of dense gradients", size(spread.dense), duration(spread.dense_seconds))
    table.add_row(f"collectives, {duration(links.latency)} each", "", duration(spread.latency_seconds))
    table.add_row("all, without the model's arithmetic", size(spread.sent), duration(spread.seconds), style="bold")
    return table
