"""`Placement`: where the rows of a table are on a mesh; resolved to devices, and stacks to layouts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from sparrow import fields
from sparrow.embedding import host_memory
from sparrow.embedding.sharding.layout import Layout
from sparrow.embedding.specs import TableSpec
from sparrow.embedding.stacking import Stack, row_step, stack_tables
from sparrow.registry import nearest
from sparrow.rules import PER_ROW

KINDS: Final = ("rows", "replicated", "device", "columns", "grid")


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the rows of a table, and their slots, are on a mesh of devices.

    >>> Placement("grid", columns=2)
    Placement(kind='grid', columns=2, devices=None, device=None)

    Attributes:
      kind: "rows": rows over all devices. "replicated": a copy on every device. "device": all rows on one device.
        "columns": the columns of all rows over several devices. "grid": columns over groups of devices, such as hosts,
        and rows over the devices of each group.
      columns: into how many pieces "columns" and "grid" cut the rows, a divisor of ``embedding_dim``. None: for
        "columns" as many as possible, for "grid" one for each process.
      devices: over how many devices "grid" splits the rows of a piece. None: all devices, divided by ``columns``.
      device: the first of its devices, in the order of the mesh. None: the one that has the least so far.
    """

    kind: Literal["rows", "replicated", "device", "columns", "grid"] = "rows"
    columns: fields.Count | None = None
    devices: fields.Count | None = None
    device: fields.CountOrZero | None = None

    def __post_init__(self) -> None:
        fields.check(self, "placement: ")
        for field, kinds in (("columns", KINDS[3:]), ("devices", KINDS[4:]), ("device", KINDS[2:])):
            if getattr(self, field) is not None and self.kind not in kinds:
                raise ValueError(f"placement: {field} has no meaning for '{self.kind}'; leave it out")


class Place(NamedTuple):
    """A placement, resolved.

    Attributes:
      copies: whether every device has all rows.
      columns: the pieces of each row.
      over: the number of devices over which the rows of a piece are split.
      device: the first device of the first piece; further ones follow.
    """

    copies: bool
    columns: int
    over: int
    device: int

    def share(self, devices: Sequence[int], held: int) -> int:
        """Return the bytes on ``devices`` of a table of ``held`` bytes."""
        each = self.columns * self.over
        own = sum(self.device <= device < self.device + each for device in devices)
        return held * len(devices) if self.copies else held * own // each


Given = str | Placement | Mapping[str, str | Placement]
"""One placement for all tables, or by table; tables that are not named are split by rows."""


def resolved(tables: Sequence[TableSpec], given: Given, devices: int, hosts: int = 1) -> dict[str, Place]:
    """Return the place of each table. Raises ValueError for placements that do not fit.

    >>> from sparrow.rules import SGD
    >>> specs = [TableSpec(name=n, vocabulary_size=10, embedding_dim=8, optimizer=SGD(0.1)) for n in "abc"]
    >>> resolved(specs, {"a": "device", "b": "device", "c": Placement("columns", columns=2, device=2)}, 4)
    {'a': Place(copies=False, columns=1, over=1, device=0), 'b': Place(copies=False, columns=1, over=1, device=1), \
'c': Place(copies=False, columns=2, over=1, device=2)}
    """
    by_table = given if isinstance(given, Mapping) else {table.name: given for table in tables}
    names = [table.name for table in tables]
    for name in by_table:
        if name not in names:
            raise ValueError(f"placement names an unknown table '{name}': {nearest(str(name), names)}")
    bytes_of = {table.name: table_bytes(table) for table in tables}
    used = np.zeros(devices)
    made: dict[str, Place] = {}
    # Places that are given come first; then the largest tables choose among the other devices.
    wanted = {table.name: _placement(by_table.get(table.name, "rows")) for table in tables}
    order = sorted(tables, key=lambda table: (wanted[table.name].device is None, -bytes_of[table.name]))
    for table in order:
        place = _place(table, wanted[table.name], devices, hosts, used)
        made[table.name] = place
        at = slice(None) if place.copies else slice(place.device, place.device + place.columns * place.over)
        used[at] += bytes_of[table.name] if place.copies else bytes_of[table.name] / (place.columns * place.over)
    return {name: made[name] for name in names}


def _placement(given: str | Placement) -> Placement:
    if isinstance(given, str):
        if given not in KINDS:
            raise ValueError(f"unknown placement '{given}': {nearest(given, KINDS)}")
        return Placement(given)  # type: ignore[arg-type]
    if not isinstance(given, Placement):
        raise TypeError(f"placement must be a name or a sparrow.Placement, got {given!r}")
    return given


def kept_by_rows(table: TableSpec) -> str | None:
    """Return the reason why a table has no other place than all devices; None: it may have any."""
    if table.dynamic is not None:
        return "dynamic: its ids"
    return "in host memory: its rows" if table.memory is not None and host_memory.is_apart() else None


def _place(table: TableSpec, given: Placement, devices: int, hosts: int, used: Any) -> Place:
    if given.kind != "rows" and (why := kept_by_rows(table)) is not None:
        raise ValueError(f"table '{table.name}' is {why} are spread over all devices; leave placement out")
    if given.kind == "rows":
        return everywhere(devices)
    if given.kind == "replicated":
        return Place(True, 1, 1, 0)
    columns = given.columns or 1
    if given.kind == "columns" and given.columns is None:
        columns = max(n for n in range(1, devices + 1) if devices % n == 0 and table.embedding_dim % n == 0)
    if given.kind == "grid" and given.columns is None:
        columns = hosts
    count = 1
    if given.kind == "grid":
        count = given.devices or max(devices // columns, 1)
    each = columns * count
    if table.embedding_dim % columns:
        raise ValueError(
            f"table '{table.name}': rows of {table.embedding_dim} numbers cannot be cut evenly into {columns} pieces; "
            "give placement.columns a divisor"
        )
    step = each if columns > 1 else 1
    if each > devices or (columns > 1 and devices % each):
        raise ValueError(
            f"table '{table.name}': {columns} pieces over {count} devices each do not fit {devices} devices evenly"
        )
    if given.device is not None:
        if given.device % step or given.device + each > devices:
            raise ValueError(
                f"table '{table.name}': placement.device must be a multiple of {step} up to {devices - each}, got "
                f"{given.device}"
            )
        return Place(False, columns, count, given.device)
    begins = range(0, devices - each + 1, each)
    least = min(begins, key=lambda begin: (used[begin : begin + each].max(), begin))
    return Place(False, columns, count, least)


def stacked(tables: Sequence[TableSpec], places: Mapping[str, Place], *, apart: bool = False) -> tuple[Stack, ...]:
    """Return the stacks of tables on a mesh: of copies, or of one form of pieces."""
    forms = {name: (own.copies, own.columns, own.over if own.columns > 1 else 0) for name, own in places.items()}
    # Tables over many devices begin at the same local row on all of them: before tables of fewer devices, none is free.
    ordered = sorted(tables, key=lambda table: (-places[table.name].over, places[table.name].device))
    return stack_tables(ordered, dynamic_alone=True, apart=apart, places=forms)


def layout_of(stack: Stack, places: Mapping[str, Place], devices: int) -> Layout:
    """Return the layout of one of the stacks of `stacked`."""
    own = [places[table.name] for table in stack.tables]
    if own[0].copies:
        return Layout(stack.num_rows, devices, stack.first_rows, copies=True)
    at = tuple((place.device, place.over) for place in own)
    if all(place == (0, devices) for place in at):
        at = ()
    return Layout(stack.num_rows, devices, stack.first_rows, at, own[0].columns)


def table_bytes(table: TableSpec) -> int:
    """Return the bytes of a table and its slots."""
    step = row_step(table)
    slots = sum(4 if layout == PER_ROW else 4 * table.embedding_dim for _, layout in step.slots)
    width = 4 if table.dtype == "float32" else 2
    return table.vocabulary_size * (table.embedding_dim * width + slots)


def to_json(places: Mapping[str, Place], devices: int) -> str:
    """Return the places as text, for `saved_stacks`; tables over all devices are left out."""
    return json.dumps({name: list(place) for name, place in places.items() if place != everywhere(devices)})


def saved_stacks(tables: Sequence[TableSpec], text: str, devices: int) -> dict[str, tuple[Stack, Layout]]:
    """Return the stack of each table, and its layout, in the places that `to_json` wrote."""
    held = {name: Place(bool(copies), *rest) for name, (copies, *rest) in json.loads(text or "{}").items()}
    places = {table.name: held.get(table.name, everywhere(devices)) for table in tables}
    stacks = stacked(tables, places) if devices > 1 else stack_tables(tables)
    by_stack = {stack.name: (stack, layout_of(stack, places, devices)) for stack in stacks}
    return {table.name: by_stack[stack.name] for stack in stacks for table in stack.tables}


def everywhere(devices: int) -> Place:
    """Return the place of a table whose rows are split over all devices."""
    return Place(False, 1, devices, 0)
