"""`choose`: the places of tables on a mesh with the smallest cost that a search finds.

All tables in one form, for every form, are the beginnings, and forms that fill the devices in even layers. From the
best of them, one table at a time moves to the form with the lowest total cost, the heaviest tables first, or the
lightest; from the best results also two tables together, until none does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sparrow.embedding.embedder import Embedder
from sparrow.embedding.planner.costs import Cost, Costs, Links
from sparrow.embedding.planner.uses import uses
from sparrow.embedding.sharding.placement import Place, Placement, everywhere, kept_by_rows

BEST: Final = 9
"""Forms of the single tables: those that cost the least where all tables have one of them, and the simple ones."""
BEGINNINGS: Final = 3
PAIRED: Final = 8
"""The heaviest tables, of which two move together."""
ROUNDS: Final = 4
WORTH: Final = 0.01
"""A table leaves its place for one that makes the score smaller by this share of it."""
COPIES: Final = Place(True, 1, 1, 0)


@dataclasses.dataclass(frozen=True)
class Choice:
    """The places of tables on ``devices`` devices, and why.

    Attributes:
      cost: of these places.
      by_rows: the cost of all tables by rows.
      alternatives: by table and kind of placement, the cost where this table alone is placed in that way.
    """

    devices: int
    places: dict[str, Place]
    cost: Cost
    by_rows: Cost
    alternatives: dict[str, dict[str, Cost]]

    @property
    def placements(self) -> dict[str, Placement]:
        """The places as an `Embedder` takes them; tables that are split by rows over all devices are left out."""
        rows = everywhere(self.devices)
        return {name: _placement_of(place) for name, place in self.places.items() if place != rows}


def choose(costs: Costs) -> Choice:
    """Return the best places that the search finds; the same for the same tables, uses and rates."""
    forms = {name: [*candidates(costs, name)] for name in costs.tables}
    rows = {name: everywhere(costs.devices) for name in costs.tables}
    starts = {everywhere(costs.devices): rows}
    for form in dict.fromkeys(form for own in forms.values() for form in own):
        starts[form] = {name: form if form in own else rows[name] for name, own in forms.items()}
    in_one = {form: costs.of_forms(start).score for form, start in starts.items()}
    best = [*sorted(starts, key=in_one.__getitem__)[:BEST], everywhere(costs.devices), COPIES]
    forms = {name: [form for form in own if form in best] for name, own in forms.items()}
    order = sorted(costs.tables, key=lambda name: -costs.weight(name))
    heavy: list[str | tuple[str, str]] = [*order, *itertools.combinations(order[:PAIRED], 2)]
    layers = sorted((_layered(costs, form, order) for form in starts), key=lambda start: costs.of_forms(start).score)
    begun = [
        _descended(costs, start, forms, way, 1)
        for start in [*(starts[form] for form in dict.fromkeys(best) if form in starts), *layers[:BEGINNINGS]]
        for way in (order, order[::-1])
    ]
    begun.sort(key=lambda one: one[0].score)
    found = [_descended(costs, start, forms, heavy, ROUNDS) for _, start in begun[:BEGINNINGS]]
    cost, start = min(found, key=lambda one: one[0].score)
    places = costs.assigned(start)
    by_rows = costs.of(rows)
    if by_rows.score <= cost.score * (1 + WORTH):
        cost, start, places = by_rows, rows, rows
    others: dict[str, dict[str, Cost]] = {}
    for name, own in forms.items():
        for form in own:
            tried = costs.of_forms({**start, name: form})
            kind = kind_of(form, costs.devices)
            if kind not in others.setdefault(name, {}) or tried.score < others[name][kind].score:
                others[name][kind] = tried
    return Choice(costs.devices, places, cost, by_rows, others)


def choose_placement(
    embedder: Embedder,
    inputs: Mapping[str, Any],
    devices: int,
    processes: int = 1,
    links: Links | None = None,
    memory: int | None = None,
) -> Choice:
    """Return the places of an embedder's tables on a mesh, from a batch that all devices share evenly.

    >>> import numpy as np, sparrow as sp
    >>> tables = {"days": 7, "users": 10_000_000}
    >>> specs = [
    ...     sp.FeatureSpec(name=name, table_spec=sp.TableSpec(
    ...         name=name, vocabulary_size=rows, embedding_dim=32, optimizer=sp.rules.SGD(0.1)))
    ...     for name, rows in tables.items()
    ... ]
    >>> batch = {"days": np.arange(65536) % 7, "users": np.arange(65536) * 99}
    >>> choice = choose_placement(sp.Embedder(specs), batch, devices=8)
    >>> choice.cost.sent <= choice.by_rows.sent
    True

    Args:
      embedder: on one device; only its tables matter.
      inputs: as for `Embedder.pack`.
      devices: their number in the mesh.
      processes: the number of processes that have them.
      links: the rates of the cluster.
      memory: bytes of a device for tables and slots; None: not limited.
    """
    counted = uses(embedder, inputs, devices)
    return choose(Costs(list(embedder.tables.values()), counted, devices, processes, links, memory))


def candidates(costs: Costs, name: str) -> Iterator[Place]:
    """Yield the forms that a table can have; their device is not chosen yet."""
    n, table = costs.devices, costs.tables[name]
    yield everywhere(n)
    if kept_by_rows(table) is not None:
        return
    if costs.memory is None or costs.bytes[name] < costs.memory:
        yield COPIES
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    for columns in divisors:
        if table.embedding_dim % columns:
            continue
        for over in divisors:
            if columns * over <= n and n % (columns * over) == 0 and (columns, over) != (1, n):
                yield Place(False, columns, over, 0)


def _layered(costs: Costs, begin: Place, order: Sequence[str]) -> dict[str, Place]:
    """Return forms that fill the devices in layers: tables in the form ``begin`` that fill all devices evenly.

    The others are split over twice as many devices, and so on: the last ones over all.
    """
    n, rows = costs.devices, everywhere(costs.devices)
    made, left = dict.fromkeys(order, rows), [*order]
    each = 1 if begin.copies else begin.columns * begin.over
    while each < n and not begin.copies:
        forms = {name: _divided(costs, name, begin, each) for name in left}
        fitting = [name for name in left if forms[name] is not None]
        layer = fitting[: len(fitting) * each // n * (n // each)]
        made |= {name: forms[name] or rows for name in layer}
        left = [name for name in left if name not in layer]
        each = next(d for d in range(each + 1, n + 1) if n % d == 0 and d % each == 0)
    return made


def _divided(costs: Costs, name: str, begin: Place, each: int) -> Place | None:
    """Return the form ``begin`` over ``each`` devices, by columns as far as they reach; None: there is none."""
    table, more = costs.tables[name], each // (begin.columns * begin.over)
    if kept_by_rows(table) is not None or table.embedding_dim % begin.columns:
        return None
    columns = begin.columns * math.gcd(more, table.embedding_dim // begin.columns)
    return Place(False, columns, each // columns, 0)


def _descended(
    costs: Costs,
    start: dict[str, Place],
    forms: Mapping[str, list[Place]],
    order: Sequence[str | tuple[str, str]],
    rounds: int,
) -> tuple[Cost, dict[str, Place]]:
    """Move tables, or pairs of them, in this order, as long as the score falls."""
    best = costs.of_forms(start)
    for _ in range(rounds):
        before = best.score
        for moved in order:
            names = (moved,) if isinstance(moved, str) else moved
            for form in forms[names[0]]:
                if form not in forms[names[-1]]:
                    continue
                tried = start | dict.fromkeys(names, form)
                cost = costs.of_forms(tried)
                if cost.score < best.score * (1 - 1e-9):
                    best, start = cost, tried
        if best.score > before * (1 - WORTH):
            break
    return best, start


def kind_of(place: Place, devices: int) -> str:
    """Return the name of a place's kind of `Placement`.

    >>> kind_of(Place(False, 2, 4, 0), 8), kind_of(Place(False, 1, 8, 0), 8)
    ('grid', 'rows')
    """
    return "rows" if place == everywhere(devices) else _placement_of(place).kind


def _placement_of(place: Place) -> Placement:
    if place.copies:
        return Placement("replicated")
    if place.over > 1:
        return Placement("grid", place.columns, place.over, place.device)
    if place.columns == 1:
        return Placement("device", device=place.device)
    return Placement("columns", place.columns, device=place.device)
