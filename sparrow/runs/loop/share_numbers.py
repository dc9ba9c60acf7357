"""The numbers of a batch that processes tell each other, where each reads its own share of the data.

Each process gives those that it knows, and 0 for the others: the largest of all are known to all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sparrow import processes

_EACH = 4  # epoch, chunk, row and malformed rows of a share


def told_of_shares(position: Mapping[str, Any], examples: int, skipped: int) -> list[int]:
    """Return the numbers of this process: examples of the batch, malformed rows so far, the position in each share."""
    counts = [0] * (2 * processes.count())
    counts[2 * processes.index() : 2 * processes.index() + 2] = [examples, skipped]
    return counts + [number for own in position["shares"] for number in own or [0] * _EACH]


def known_of_shares(position: Mapping[str, Any], numbers: Sequence[int]) -> tuple[dict[str, Any], int, int]:
    """Return the position in all shares, the examples of the batch, and the malformed rows, of all processes."""
    end = 2 * processes.count()
    counts, shares = numbers[:end], numbers[end:]
    found = [list(shares[at : at + _EACH]) for at in range(0, len(shares), _EACH)]
    # Where the data are not divided, all processes read all of them, and know all malformed rows.
    skipped = sum(counts[1::2]) if found else max(counts[1::2])
    return {**position, "shares": found}, sum(counts[::2]), skipped
