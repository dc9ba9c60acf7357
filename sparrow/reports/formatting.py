"""Numbers in words and units."""

from __future__ import annotations

import datetime
import math
from typing import Final

_STEPS: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def precise(value: float) -> str:
    """Return a metric: four digits that count.

    >>> [precise(v) for v in (0.712391, 1234.5678, 0.0000123, float("nan"), 0, 12)]
    ['0.7124', '1,235', '1.23e-05', 'not defined', '0', '12']
    """
    if not math.isfinite(value):
        return "not defined"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4f}" if 0.001 <= abs(value) < 1 else f"{value:.4g}"


def compact(value: float) -> str:
    """Return a number on an axis.

    >>> [compact(v) for v in (0, 0.25, 1500, 20_000, 3_000_000, 1e-5, -0.5)]
    ['0', '0.25', '1.5k', '20k', '3M', '1e-5', '−0.5']
    """
    if value == 0:
        return "0"
    size, sign = abs(value), "−" if value < 0 else ""
    for unit, letter in _STEPS:
        if size >= unit and size < 1000 * _STEPS[0][0]:
            return f"{sign}{size / unit:.10g}{letter}"
    if 1e-4 <= size < 1e3:
        return f"{sign}{size:.10g}"
    mantissa, _, exponent = f"{size:.6e}".partition("e")
    return f"{sign}{float(mantissa):g}e{int(exponent)}"


def percent(share: float) -> str:
    """Return a share.

    >>> percent(0.12345), percent(0.99996), percent(1), percent(0.00001)
    ('12.3%', '99.99%', '100%', '0.001%')
    """
    if share in (0, 1):
        return f"{share:.0%}"
    digits = 1 if 0.001 <= share <= 0.999 else 3 if share < 0.001 else 2
    scaled = 100 * share
    floor = math.floor(scaled * 10**digits) / 10**digits if share > 0.999 else scaled  # 99.99%, not a false 100%
    return f"{floor:.{digits}f}%"


def size(count: float) -> str:
    """Return a number of bytes.

    >>> [size(b) for b in (512, 2_500, 64e6, 1.5e9, 2e12)]
    ['512 B', '2.5 kB', '64 MB', '1.5 GB', '2 TB']
    """
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}" if count < 999 * unit else f"{count / unit:.0f} {name}"
    return f"{count:.0f} B"


def duration(seconds: float) -> str:
    """Return a length of time.

    >>> [duration(s) for s in (0.25, 42.3, 75, 7300, 200_000)]
    ['250 ms', '42 s', '1 min 15 s', '2 h 1 min', '2 d 7 h']
    """
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 10:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    for (unit, name), (below, below_name) in (
        ((86400, "d"), (3600, "h")),
        ((3600, "h"), (60, "min")),
        ((60, "min"), (1, "s")),
    ):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {name}" + (f" {rest} {below_name}" if rest else "")
    return f"{whole} s"


def date(seconds: float) -> str:
    """Return a moment, in UTC.

    >>> date(0)
    '1970-01-01 00:00 UTC'
    """
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
