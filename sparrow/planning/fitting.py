"""Lines for a config whose tables do not fit on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from sparrow.planning.sizes import TableSize
from sparrow.reports import size

ROOM: Final = 0.9
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
        if needed - off < ROOM * free * 0.75:
            break
    room = ROOM * free - (needed - off)
    share = math.floor(100 * room / off) / 100
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
