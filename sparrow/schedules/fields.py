"""Checks of a record's fields: one sentence that names the record, the field and the value given.

Arrays and tracers pass unchecked: their value is not known when the record is made.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import jax.numpy as jnp


def is_zero(value: Any) -> bool:
    """True for a Python (or NumPy) number that is 0; an array's value is not looked at."""
    return isinstance(value, Real) and value == 0


def check_number(record: object, *fields: str, **bounds: float) -> None:
    """`require_number` of each field of a record."""
    for field in fields:
        require_number(f"{type(record).__name__}.{field}", getattr(record, field), **bounds)


def check_whole(record: object, *fields: str, at_least: int) -> None:
    """`require_whole` of each field of a record."""
    for field in fields:
        require_whole(f"{type(record).__name__}.{field}", getattr(record, field), at_least=at_least)


def check_choice(record: object, field: str, *choices: str | None) -> None:
    """Raises ValueError unless the field is one of ``choices``."""
    value = getattr(record, field)
    if value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"{type(record).__name__}.{field} must be one of {allowed}, got {value!r}")


def require_number(
    name: str,
    value: Any,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> None:
    """Raises ValueError unless ``value`` is a finite number within the bounds.

    >>> require_number("beta", 1.0, at_least=0, below=1)
    Traceback (most recent call last):
    ValueError: beta must be a finite number at least 0 and below 1, got 1.0
    """
    if not isinstance(value, Real) and hasattr(value, "dtype"):
        return
    within = (
        isinstance(value, Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and at_least <= float(value) <= at_most
        and above < float(value) < below
    )
    if not within:
        bounds = {"at least": at_least, "above": above, "at most": at_most, "below": below}
        rule = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
        raise ValueError(f"{name} must be a finite number{' ' * bool(rule)}{rule}, got {value!r}")


def require_whole(name: str, value: Any, *, at_least: int) -> None:
    """Raises ValueError unless ``value`` is a whole number from ``at_least`` to what an int32 step can count."""
    if not isinstance(value, Integral) or isinstance(value, bool) or not at_least <= int(value) < 2**31:
        raise ValueError(f"{name} must be a whole number of at least {at_least} (and below 2**31), got {value!r}")


def name_dtype(record: object, field: str) -> None:
    """Keeps a dtype as its name (or None), so that the record can be written to a file."""
    value = getattr(record, field)
    if value is None:
        return
    try:
        name = jnp.dtype(value).name
    except TypeError:
        raise ValueError(f"{type(record).__name__}.{field} must be a dtype such as 'bfloat16', got {value!r}") from None
    object.__setattr__(record, field, name)
