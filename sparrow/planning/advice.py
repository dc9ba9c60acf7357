"""Advice that makes a run smaller, with the bytes that it saves; lines for a config whose tables do not fit."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparrow import rules
from sparrow.embedding import TableSpec, table_bytes
from sparrow.planning.sizes import Movement, TableSize
from sparrow.reports import size
from sparrow.rules import Rule

WORTH: Final = 0.02
"""Savings below this share of the state are not worth a line."""
SMALLER: Final[Mapping[type[Rule], type[Rule]]] = {
    rules.Adagrad: rules.RowwiseAdagrad,
    rules.Adam: rules.PartialRowwiseAdam,
    rules.LAMB: rules.PartialRowwiseLAMB,
}
"""Rules with a sibling that keeps one number per row in place of a vector."""


def advice(specs: Sequence[TableSpec], state: int, movement: Movement, steps: int | None) -> list[str]:
    """Return a line for each change, the one that saves the most first.

    ``state``: bytes of the complete state; ``movement``: the lookups of a step; ``steps``: those of the run, if known.
    """
    found = [*_row_wise(specs), *_half(specs), *_too_many_rows(specs, movement, steps)]
    found.sort(key=lambda entry: -entry[0])
    return [line for saved, line in found if saved >= WORTH * state]


def _row_wise(specs: Sequence[TableSpec]) -> list[tuple[int, str]]:
    found = []
    for rule, smaller in SMALLER.items():
        using = [spec for spec in specs if type(spec.optimizer) is rule and not spec.optimizer.frozen]
        saved = _saved(using, functools.partial(dataclasses.replace, optimizer=smaller()))
        if saved > 0:
            where = _where(using)
            found.append((saved, f"{smaller.__name__} in place of {rule.__name__} would save {size(saved)} ({where})"))
    return found


def _half(specs: Sequence[TableSpec]) -> list[tuple[int, str]]:
    wide = [spec for spec in specs if spec.dtype == "float32"]
    saved = _saved(wide, functools.partial(dataclasses.replace, dtype="bfloat16"))
    how = "dtype of model.tables"
    return [(saved, f"tables in bfloat16 would save {size(saved)} ({_where(wide)}; {how})")] if saved > 0 else []


def _too_many_rows(specs: Sequence[TableSpec], movement: Movement, steps: int | None) -> list[tuple[int, str]]:
    """Tables with more rows than the run can ever touch."""
    found: dict[str, int] = {}
    for spec in specs if steps is not None else ():
        most = movement.tables[spec.name].lookups * (steps or 0)
        if 0 < most < spec.vocabulary_size:
            found[spec.name] = _saved([spec], functools.partial(dataclasses.replace, vocabulary_size=most))
    if not found:
        return []
    largest, saved = max(found, key=found.__getitem__), sum(found.values())
    who = f"table '{largest}' has" if len(found) == 1 else f"'{largest}' and {len(found) - 1} more tables have"
    text = f"{who} more rows than the run makes lookups: at least {size(saved)} are never used; fewer rows would do"
    return [(saved, text)]


def _saved(specs: Sequence[TableSpec], change: Callable[[TableSpec], TableSpec]) -> int:
    return sum(table_bytes(spec) - table_bytes(change(spec)) for spec in specs)


def _where(specs: Sequence[Any]) -> str:
    return f"table '{specs[0].name}'" if len(specs) == 1 else f"{len(specs)} tables"


CACHES: Final = 0.9
"""The share of the free device memory that caches may be advised to take."""


def lines_that_fit(tables: Sequence[TableSize], needed: int, free: int) -> list[str]:
    """Return lines for the config that keep the largest tables in host memory, so that the rest fits.

    >>> one = TableSize("users", "users", 1000, 4, "float32", "SGD", 16_000, {})
    >>> lines_that_fit([one], 20_000, 12_000)[2:]
    ['  tables:', '    - tables: [users]', '      memory: {kind: host, cache: 0.42}']
    """
    chosen, off = [], 0
    for table in sorted(tables, key=lambda table: -table.total):
        chosen.append(table)
        off += table.total
        if needed - off < CACHES * free * 0.75:
            break
    share = math.floor(100 * (CACHES * free - (needed - off)) / off) / 100
    if share < 0.01:
        return []
    names = ", ".join(sorted(table.name for table in chosen))
    return [
        f"to fit, keep {size(off)} of tables in host memory, with caches of {share:.0%}:",
        "model:",
        "  tables:",
        f"    - tables: [{names}]",
        f"      memory: {{kind: host, cache: {share:g}}}",
    ]
