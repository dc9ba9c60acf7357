"""Checks of a record's fields: one sentence that names the record, the field and the value given.

Arrays and tracers pass unchecked: their value is not known when the record is made.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def is_zero(value: Any) -> bool:
    """True for a Python (or NumPy) number that is 0; an array's value is not looked at."""
    return isinstance(value, Real) and value == 0


def check_number(
    record: object,
    *fields: str,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> None:
    """Raises ValueError unless each field is a finite number within the bounds."""
    bounds = {"at least": at_least, "above": above, "at most": at_most, "below": below}
    rule = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
    for field in fields:
        value = getattr(record, field)
        if _is_array(value):
            continue
        if (
            not isinstance(value, Real)
            or isinstance(value, bool)
            or not math.isfinite(value)
            or not (at_least <= float(value) <= at_most and above < float(value) < below)
        ):
            raise ValueError(
                f"{type(record).__name__}.{field} must be a finite number {rule}".rstrip() + f", got {value!r}"
            )


def check_whole(record: object, *fields: str, at_least: int) -> None:
    """Raises ValueError unless each field is a whole number from ``at_least`` to what an int32 step can count."""
    for field in fields:
        value = getattr(record, field)
        if not isinstance(value, Integral) or isinstance(value, bool) or not at_least <= int(value) < 2**31:
            raise ValueError(
                f"{type(record).__name__}.{field} must be a whole number of at least {at_least}"
                f" (and below 2**31), got {value!r}"
            )


def check_choice(record: object, field: str, *choices: str | None) -> None:
    """Raises ValueError unless the field is one of ``choices``."""
    if getattr(record, field) not in choices:
        raise ValueError(
            f"{type(record).__name__}.{field} must be one of {', '.join(map(repr, choices))}, "
            f"got {getattr(record, field)!r}"
        )


def _is_array(value: object) -> bool:
    return not isinstance(value, Real) and hasattr(value, "dtype") and hasattr(value, "shape")
