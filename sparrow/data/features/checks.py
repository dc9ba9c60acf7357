"""What every feature asks of its fields."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from sparrow.registry import nearest


def text(where: str, field: str, value: Any) -> None:
    """Refuses what is not a non-empty text."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{where}: {field} must be a non-empty text, got {value!r}")


def whole(where: str, field: str, value: Any, low: int = 1, high: int = 2**31 - 2**28) -> None:
    """Refuses what is not a whole number from ``low`` to ``high``."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{where}: {field} must be a whole number from {low} to {high}, got {value!r}")


def number(where: str, field: str, value: Any, above: float = -math.inf) -> None:
    """Refuses what is not a finite number above ``above``."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value) or value <= above:
        limit = "" if above == -math.inf else f" above {above:g}"
        raise ValueError(f"{where}: {field} must be a finite number{limit}, got {value!r}")


def choice(where: str, field: str, value: Any, allowed: Sequence[str]) -> None:
    """Refuses what is not one of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"{where}: {field} cannot be {value!r}: {nearest(str(value), allowed)}")
