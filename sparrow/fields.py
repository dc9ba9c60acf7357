"""Checks of fields: one sentence that names the field, the values allowed and the value given.

``name`` is the field as the sentence calls it: ``Adam.beta1`` of a record, ``feature 'user': dim`` of a named one.
Arrays and tracers pass as numbers: their values are not known when a record is made.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
import types
import typing
from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Annotated, Any

from sparrow.registry import Bounds, nearest

LARGEST = 2**31 - 1
"""The largest number that an int32 counts."""


def is_zero(value: Any) -> bool:
    """Return True for a Python or NumPy number that is 0; the value of an array is not read."""
    return isinstance(value, Real) and value == 0


def is_number(value: Any) -> bool:
    """Return True for a finite Python or NumPy number that is not a bool."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def at_step(value: Any, step: Any) -> Any:
    """Return a number, or the value of a schedule ``step -> value`` at ``step``.

    A function without arguments is called without: once when a step is compiled, whose number it then stays.

    >>> at_step(0.1, 5), at_step(lambda step: 0.1 * step, 5), at_step(lambda: 0.2, 5)
    (0.1, 0.5, 0.2)
    """
    if not callable(value):
        return value
    return value(step) if takes_step(value) else value()


def takes_step(schedule: Any) -> bool:
    """Return whether a function takes an argument."""
    try:
        return bool(inspect.signature(schedule).parameters)
    except (TypeError, ValueError):  # a function of compiled code
        return True


def number(
    name: str,
    value: Any,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> None:
    """Raise ValueError unless ``value`` is a finite number within the bounds.

    >>> number("Adam.beta1", 1.0, at_least=0, below=1)
    Traceback (most recent call last):
    ValueError: Adam.beta1 must be a finite number at least 0 and below 1, got 1.0
    """
    if not isinstance(value, Real) and hasattr(value, "dtype"):
        return
    if not (is_number(value) and at_least <= value <= at_most and above < value < below):
        bounds = {"at least": at_least, "above": above, "at most": at_most, "below": below}
        allowed = " and ".join(f"{word} {bound:g}" for word, bound in bounds.items() if math.isfinite(bound))
        raise ValueError(f"{name} must be a finite number{' ' * bool(allowed)}{allowed}, got {value!r}")


def integer(name: str, value: Any, *, at_least: int = 1, at_most: float = LARGEST) -> None:
    """Raise ValueError unless ``value`` is an integer within the bounds.

    >>> integer("MMoE.num_experts", 0)
    Traceback (most recent call last):
    ValueError: MMoE.num_experts must be an integer of at least 1, got 0
    """
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_integer or not at_least <= int(value) <= at_most:
        too_large = is_integer and int(value) > at_most
        upper = f" and at most {at_most}" if too_large else ""
        raise ValueError(f"{name} must be an integer of at least {at_least}{upper}, got {value!r}")


def increasing(name: str, values: Iterable[Any]) -> None:
    """Raise ValueError unless ``values`` holds finite numbers, at least one, each above the one before.

    >>> increasing("Bucketize.boundaries", [1.0, 1.0])
    Traceback (most recent call last):
    ValueError: Bucketize.boundaries must increase, but 1 comes after 1
    """
    values = tuple(values)
    if not values:
        raise ValueError(f"{name} must hold at least one number")
    for value in values:
        number(name, value)
    for a, b in itertools.pairwise(values):
        if a >= b:
            raise ValueError(f"{name} must increase, but {b:g} comes after {a:g}")


def string(name: str, value: Any) -> None:
    """Raise ValueError unless ``value`` is a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} must be a string that is not empty, got {value!r}")


def choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Raise ValueError unless ``value`` is one of ``choices``.

    >>> choice("RMSprop.form", "tensorflow", ["torch", "optax"])
    Traceback (most recent call last):
    ValueError: RMSprop.form must be one of 'torch', 'optax', got 'tensorflow'
    """
    choices = list(choices)
    if value not in choices:
        close = isinstance(value, str) and nearest(value, [each for each in choices if isinstance(each, str)])
        hint = f"; {close.split('?')[0]}?" if close and "did you mean" in close else ""
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}{hint}")


Finite = Annotated[float, Bounds()]
NotNegative = Annotated[float, Bounds(at_least=0)]
Positive = Annotated[float, Bounds(above=0)]
Share = Annotated[float, Bounds(at_least=0, below=1)]
"""At least 0 and below 1."""
Count = Annotated[int, Bounds(at_least=1)]
CountOrZero = Annotated[int, Bounds(at_least=0)]


def check(record: Any, prefix: str | None = None) -> None:
    """Check the fields of a dataclass whose types have `Bounds` or are a ``Literal``; schedules pass where they may be.

    Errors call a field by its name behind ``prefix``: by default, the class and a dot.

    >>> import dataclasses
    >>> @dataclasses.dataclass(frozen=True)
    ... class Momentum:
    ...     decay: Share = 0.9
    >>> check(Momentum(1.0))
    Traceback (most recent call last):
    ValueError: Momentum.decay must be a finite number at least 0 and below 1, got 1.0
    """
    for field, (kind, allowed, optional) in _checked(type(record)).items():  # type: ignore[arg-type]
        name = f"{type(record).__name__}.{field}" if prefix is None else prefix + field
        value = getattr(record, field)
        if value is None and optional:
            continue
        if kind is None:
            choice(name, value, allowed)
        elif kind is int:
            integer(name, value, at_least=allowed.at_least)
        elif not (callable(value) and any(typing.get_origin(one) is Callable for one in typing.get_args(kind))):
            number(name, value, **allowed._asdict())


@functools.cache
def _checked(cls: type[Any]) -> dict[str, tuple[Any, Any, bool]]:
    """Return the fields that `check` looks at: the type and its `Bounds`, or None and choices; whether None may be."""
    found: dict[str, tuple[Any, Any, bool]] = {}
    for field, hint in typing.get_type_hints(cls, include_extras=True).items():
        is_union = typing.get_origin(hint) in (types.UnionType, typing.Union)
        parts = typing.get_args(hint) if is_union else (hint,)
        for part in parts:
            if typing.get_origin(part) is typing.Literal and {*parts} <= {part, type(None)}:
                found[field] = None, typing.get_args(part), is_union
            elif bounds := [one for one in getattr(part, "__metadata__", ()) if isinstance(one, Bounds)]:
                found[field] = part.__origin__, bounds[0], type(None) in parts
    return found


def name_dtype(record: object, field: str, *choices: str) -> None:
    """Replace a dtype of a record by its name, so that it can be written to a file, and check that; None stays."""
    import jax.numpy as jnp

    value = getattr(record, field)
    if value is None:
        return
    try:
        name = jnp.dtype(value).name
    except TypeError:
        raise ValueError(f"{type(record).__name__}.{field} must be a dtype such as 'bfloat16', got {value!r}") from None
    object.__setattr__(record, field, name)
    if choices:
        choice(f"{type(record).__name__}.{field}", name, choices)
