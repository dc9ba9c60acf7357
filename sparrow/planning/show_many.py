"""A plan over many devices as people read it."""

from __future__ import annotations

from rich.console import Console, Group
from rich.table import Table

from sparrow.planning.many import ManyDevices
from sparrow.planning.show import new_table
from sparrow.reports import duration, size


def show_spread(spread: ManyDevices, console: Console | None = None) -> None:
    """Print it."""
    (console or Console()).print(Group(_exchange(spread), _device(spread), _step(spread)))


def _exchange(spread: ManyDevices) -> Table:
    title = f"Traffic of {spread.devices} devices in {spread.processes} processes"
    table = new_table(title, "stack", "exchange", "sent by a device", "fullest pair", "fullest owner", "padding")
    for name, one in spread.stacks.items():
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
