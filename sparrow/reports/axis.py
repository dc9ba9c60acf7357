"""`Axis`: the places of values, with round ticks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence


@dataclasses.dataclass(frozen=True)
class Axis:
    """From ``low`` to ``high``; ``title`` names the quantity, with its unit.

    >>> axis = Axis.around([0.61, 0.74], "AUC")
    >>> axis.low, axis.high, axis.ticks
    (0.6, 0.75, (0.6, 0.65, 0.7, 0.75))
    """

    title: str
    low: float
    high: float
    log: bool = False
    ticks: tuple[float, ...] = ()

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        title: str,
        *,
        from_zero: bool = False,
        log: bool = False,
        tight: bool = False,
        count: int = 4,
        least: float = 0.0,
    ) -> Axis:
        """Return an axis that holds all values that are finite (and, for ``log``, above 0).

        ``tight``: it ends where the values do, not at a tick; ``least``: the smallest span, as a share of the largest
        value, so that noise does not fill the chart.

        >>> axis = Axis.around([0.982, 0.986], "hit rate", least=0.1)
        >>> axis.low, axis.high
        (0.92, 1.04)
        """
        kept = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        low, high = (min(kept), max(kept)) if kept else (1.0, 10.0) if log else (0.0, 1.0)
        if log:
            return cls._of_log(title, low, high)
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low < high and (short := least * max(abs(low), abs(high)) - (high - low)) > 0:
            low, high = low - short / 2, high + short / 2
        if low == high:  # a single value stands in the middle
            margin = abs(low) * 0.1 or 1.0
            low, high = low - margin, high + margin
            tight = False
        ticks = round_ticks(low, high, count)
        if not tight:
            step = ticks[1] - ticks[0]
            low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
            ticks = _multiples(low, high, step)
        return cls(title, _clean(low), _clean(high), False, tuple(ticks))

    @classmethod
    def _of_log(cls, title: str, low: float, high: float) -> Axis:
        first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
        last = max(last, first + 1)
        stride = -(-(last - first) // 5)
        ticks = [10.0**power for power in range(first, last + 1, stride)]
        if last - first == 1:
            ticks = [10.0**first * factor for factor in (1, 2, 5, 10)]
        return cls(title, 10.0**first, 10.0**last, True, tuple(ticks))

    def at(self, value: float) -> float:
        """Return the place of a value: 0 at the low end, 1 at the high end; NaN if it has none."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return math.nan
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def round_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return about ``count`` multiples of 1, 2 or 5 times a power of ten between two numbers, at least two.

    >>> round_ticks(0, 488, 5), round_ticks(0.61, 0.74)
    ([0.0, 100.0, 200.0, 300.0, 400.0], [0.65, 0.7])
    """
    aim = (high - low) / count
    power = 10.0 ** math.floor(math.log10(aim))
    factor = next((factor for factor, most in ((1, 1.5), (2, 3), (5, 7)) if aim / power < most), 10)
    ticks = _multiples(low, high, factor * power)
    return ticks if len(ticks) >= 2 else round_ticks(low, high, 2 * count)


def _multiples(low: float, high: float, step: float) -> list[float]:
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [_clean(index * step) for index in range(first, last + 1)]


def _clean(value: float) -> float:
    """Return the value without the noise of binary fractions: 0.3, not 0.30000000000000004."""
    return float(f"{value:.12g}")


def is_wide(values: Sequence[float]) -> bool:
    """Return whether values, all above 0, have so wide a range that a logarithmic axis shows them better."""
    kept = [value for value in values if math.isfinite(value)]
    return bool(kept) and min(kept) > 0 and max(kept) / min(kept) >= 50
