"""A plan over many devices as people read it."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table

from sparrow.planning.many import ManyDevices
from sparrow.planning.show import new_table
from sparrow.reports import duration, size


def show_spread(spread: ManyDevices, console: Console | None = None) -> None:
    """Print it."""
    (console or Console()).print(
        Group(_placement(spread), _exchange(spread), _devices(spread), _device(spread), _step(spread))
    )


SHOWN: Final = 16
"""The devices that have a line of their own."""


def _placement(spread: ManyDevices) -> Table:
    """Return the place of each table, and the least that another kind of place would cost."""
    sent, seconds = spread.by_rows
    title = f"Placement; all tables by rows: {size(sent)} sent by a device, {duration(seconds)}"
    table = new_table(title, "table", "place", "sent by a device", "exchange", "with another place")
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
    table = new_table(title, "device", "rows and slots it has", "rows it looks up", "sends")
    order = sorted(range(spread.devices), key=lambda device: (-spread.used[device], -spread.read[device]))
    for device in sorted(order[:SHOWN]):
        sent = size(spread.inside + spread.between)
        table.add_row(str(device), size(spread.used[device]), size(spread.read[device]), sent)
    if spread.devices > SHOWN:
        table.add_row("others", f"{size(spread.used[order[-1]])} or more", "", "")
    return table


def _exchange(spread: ManyDevices) -> Table:
    title = f"Traffic of {spread.devices} devices in {spread.processes} processes"
    table = new_table(title, "stack", "exchange", "sent by a device", "fullest pair", "fullest owner", "padding")
    for name, one in spread.stacks.items():
        name = f"{one.tables[0]} and {len(one.tables) - 1} more" if len(one.tables) > 1 else name
        shares = f"{one.fullest:.2f}", f"{one.owners:.2f}", f"{one.padding:.0%}"
        table.add_row(name, one.exchange, size(one.sent), *shares)
    return table


def _device(spread: ManyDevices) -> Table:
    table = new_table("Memory of a device", "what", "bytes")
    table.add_row("tables and their slots", size(spread.tables))
    table.add_row("dense parameters and the rest of the state, on every device", size(spread.state))
    table.add_row("activations, batches, exchange and work space", size(spread.work))
    table.add_row("all", size(spread.memory), style="bold")
    return table


def _step(spread: ManyDevices) -> Table:
    links = spread.links
    table = new_table("A step of a device", "what", "bytes sent", "")
    table.add_row("rows and slots, at the fullest owner", "", duration(spread.rows_seconds))
    table.add_row("activations, gradients, dense state", "", duration(spread.ordered_seconds))
    table.add_row(f"to devices of its process, {size(links.link)}/s", size(spread.inside), "")
    table.add_row(f"to other processes, {size(links.network)}/s for all devices of one", size(spread.between), "")
    table.add_row("exchange, the slower of both", "", duration(spread.exchange_seconds))
    table.add_row("sum of dense gradients", size(spread.dense), duration(spread.dense_seconds))
    table.add_row(f"collectives, {duration(links.latency)} each", "", duration(spread.latency_seconds))
    table.add_row("all, without the model's arithmetic", size(spread.sent), duration(spread.seconds), style="bold")
    return table
