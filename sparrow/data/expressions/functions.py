"""The values of expressions, one or several numbers per row, and the functions and operators on them, in float64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data.values import offsets_of, places_of

Floats = npt.NDArray[np.float64]


class Uneven(Exception):
    """Raised where lists of one row differ in length. ``rows``: the rows, as a mask."""

    def __init__(self, rows: npt.NDArray[np.bool_]) -> None:
        super().__init__()
        self.rows = rows


class Vector(NamedTuple):
    """Numbers of all rows: (rows,), or (entries,) one row after the other, and (rows + 1,) where each row begins."""

    values: Floats
    offsets: npt.NDArray[np.int64] | None = None

    def as_lists(self) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return values and offsets; a single number is a list of one."""
        return self.values, np.arange(len(self.values) + 1) if self.offsets is None else self.offsets


def elementwise(function: Callable[..., Any], arguments: Sequence[Vector]) -> Vector:
    """Call a NumPy function on every number; single numbers are repeated beside lists.

    >>> a, b = Vector(np.array([1.0, 2.0])), Vector(np.array([1.0, 1.0, 5.0]), np.array([0, 2, 3]))
    >>> elementwise(np.add, [a, b]).values.tolist()
    [2.0, 2.0, 7.0]
    """
    values, offsets = aligned(arguments)
    return Vector(np.asarray(function(*values), np.float64), offsets)


def aligned(arguments: Sequence[Vector]) -> tuple[list[Floats], npt.NDArray[np.int64] | None]:
    """Return the values of all arguments, number beside number."""
    lists = [argument.offsets for argument in arguments if argument.offsets is not None]
    if not lists:
        return [argument.values for argument in arguments], None
    lengths = np.diff(lists[0])
    for other in lists[1:]:
        if (uneven := np.diff(other) != lengths).any():
            raise Uneven(uneven)
    return [a.values if a.offsets is not None else np.repeat(a.values, lengths) for a in arguments], lists[0]


def padded(arguments: list[Vector], fill: float) -> list[Vector]:
    """Return the arguments with ``fill`` behind the lists that are shorter than another one of their row.

    >>> a, b = Vector(np.array([1.0, 2.0]), np.array([0, 2])), Vector(np.array([5.0]), np.array([0, 1]))
    >>> [vector.values.tolist() for vector in padded([a, b], 0.0)]
    [[1.0, 2.0], [5.0, 0.0]]
    """
    lengths = [np.diff(argument.offsets) for argument in arguments if argument.offsets is not None]
    if len(lengths) < 2:
        return arguments
    offsets = offsets_of(np.maximum.reduce(lengths))

    def filled(vector: Vector) -> Vector:
        if vector.offsets is None:
            return vector
        values = np.full(int(offsets[-1]), fill)
        values[places_of(offsets[:-1], np.diff(vector.offsets))] = vector.values
        return Vector(values, offsets)

    return [filled(argument) for argument in arguments]


def by_row(ufunc: Any, values: Floats, offsets: npt.NDArray[np.int64], empty: float) -> Floats:
    """Reduce the numbers of each row; ``empty``: the result of a row without numbers.

    >>> by_row(np.add, np.array([1.0, 2.0, 4.0]), np.array([0, 2, 2, 3]), 0.0).tolist()
    [3.0, 0.0, 4.0]
    """
    made = np.full(len(offsets) - 1, empty)
    there = np.diff(offsets) > 0
    if there.any():
        made[there] = ufunc.reduceat(values, offsets[:-1][there])
    return made


EARTH: Final = 6371.0
"""The mean radius of the earth in kilometers."""


class Function(NamedTuple):
    """A function of an expression, with its least and its most arguments; None: any number."""

    compute: Callable[[Sequence[Vector]], Vector]
    least: int
    most: int | None


def _numbers(function: Callable[..., Any], least: int = 1, most: int | None = 1) -> Function:
    return Function(functools.partial(elementwise, function), least, most)


def _all(ufunc: Any) -> Function:
    """Return the function that applies ``ufunc`` to all its arguments, pair by pair."""
    return Function(lambda arguments: elementwise(lambda *values: functools.reduce(ufunc, values), arguments), 1, None)


def _of_list(reduce: Callable[[Floats, Any], Floats]) -> Function:
    return Function(lambda arguments: Vector(reduce(*arguments[0].as_lists())), 1, 1)


def _of_lists(reduce: Callable[[Floats, Floats, Any], Floats]) -> Function:
    def compute(arguments: Sequence[Vector]) -> Vector:
        (a, b), offsets = aligned([Vector(*argument.as_lists()) for argument in arguments])
        return Vector(reduce(a, b, offsets))

    return Function(compute, 2, 2)


def _round(x: Floats) -> Floats:
    """Round halves away from zero."""
    cut = np.trunc(x)
    return np.where(np.abs(x - cut) >= 0.5, cut + np.sign(x), cut)


def _roundp(x: Floats, places: Floats) -> Floats:
    scale: Floats = 10.0 ** np.trunc(places)
    return _round(x * scale) / scale


def _haversine(lng1: Floats, lat1: Floats, lng2: Floats, lat2: Floats) -> Floats:
    """Return the kilometers between two points on the earth, by the haversine formula; exact for near points."""
    lng1, lat1, lng2, lat2 = (np.radians(x) for x in (lng1, lat1, lng2, lat2))
    half = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lng2 - lng1) / 2) ** 2
    return np.asarray(2 * EARTH * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0))))


def _sphere_dist(lng1: Floats, lat1: Floats, lng2: Floats, lat2: Floats) -> Floats:
    """Return the kilometers between two points on the earth, by the law of cosines."""
    lng1, lat1, lng2, lat2 = (np.radians(x) for x in (lng1, lat1, lng2, lat2))
    cosine = np.sin(lat1) * np.sin(lat2) + np.cos(lat1) * np.cos(lat2) * np.cos(lng2 - lng1)
    return np.asarray(EARTH * np.arccos(np.clip(cosine, -1.0, 1.0)))


def _count(x: Floats, offsets: Any) -> Floats:
    return np.asarray(np.diff(offsets), np.float64)


def _sum(x: Floats, offsets: Any) -> Floats:
    return by_row(np.add, x, offsets, 0.0)


def _mean(x: Floats, offsets: Any) -> Floats:
    return _sum(x, offsets) / _count(x, offsets)  # 0 / 0 is NaN, which is a missing number


def _variance(x: Floats, offsets: Any, less: int = 0) -> Floats:
    centered = x - np.repeat(_mean(x, offsets), np.diff(offsets))
    return _sum(centered * centered, offsets) / (_count(x, offsets) - less)


def _squared_norm(x: Floats, offsets: Any) -> Floats:
    return _sum(x * x, offsets)


def _bits(operation: Any) -> Callable[[Floats, Floats], Floats]:
    """Return a bitwise operation on the integer parts; NaN where an argument is."""

    def compute(a: Floats, b: Floats) -> Floats:
        lost = ~(np.isfinite(a) & np.isfinite(b))
        bits = operation(np.where(lost, 0.0, a).astype(np.int64), np.where(lost, 0.0, b).astype(np.int64))
        return np.where(lost, np.nan, bits)

    return compute


_SYMBOLS: Final[Mapping[str, Callable[..., Any]]] = {
    "?:": lambda test, then, other: np.where(test != 0, then, other),
    "||": lambda a, b: (a != 0) | (b != 0),
    "&&": lambda a, b: (a != 0) & (b != 0),
    "|": _bits(np.bitwise_or),
    "&": _bits(np.bitwise_and),
    "<=": np.less_equal,
    ">=": np.greater_equal,
    "!=": np.not_equal,
    "==": np.equal,
    ">": np.greater,
    "<": np.less,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "negative": np.negative,
    "!": lambda x: x == 0,
}
OPERATORS: Final[Mapping[str, Callable[[Sequence[Vector]], Vector]]] = {
    symbol: functools.partial(elementwise, function) for symbol, function in _SYMBOLS.items()
}

FUNCTIONS: Final[Mapping[str, Function]] = {
    **{name: _numbers(getattr(np, name)) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "log2", "log10")},
    **{name: _numbers(getattr(np, name)) for name in ("exp", "sqrt", "sign", "abs", "rint", "floor", "ceil", "trunc")},
    **{name: _numbers(getattr(np, f"arc{name[1:]}")) for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "log": _numbers(np.log),
    "ln": _numbers(np.log),
    "round": _numbers(_round),
    "roundp": _numbers(_roundp, 2, 2),
    "sigmoid": _numbers(lambda x: np.exp(-np.logaddexp(0.0, -x))),
    "sphere_dist": _numbers(_sphere_dist, 4, 4),
    "haversine": _numbers(_haversine, 4, 4),
    "min": _all(np.minimum),
    "max": _all(np.maximum),
    "sum": _all(np.add),
    "avg": Function(lambda arguments: elementwise(lambda *values: sum(values) / len(values), arguments), 1, None),
    # Functions of lists, which give one number per row.
    "len": _of_list(_count),
    "l2_norm": _of_list(lambda x, offsets: np.sqrt(_squared_norm(x, offsets))),
    "squared_norm": _of_list(_squared_norm),
    "dot": _of_lists(lambda a, b, offsets: _sum(a * b, offsets)),
    "euclid_dist": _of_lists(lambda a, b, offsets: np.sqrt(_squared_norm(a - b, offsets))),
    "std_dev": _of_list(lambda x, offsets: np.sqrt(_variance(x, offsets))),
    "pop_std_dev": _of_list(lambda x, offsets: np.sqrt(_variance(x, offsets, 1))),
    "variance": _of_list(_variance),
    "pop_variance": _of_list(lambda x, offsets: _variance(x, offsets, 1)),
    "reduce_min": _of_list(lambda x, offsets: by_row(np.minimum, x, offsets, np.nan)),
    "reduce_max": _of_list(lambda x, offsets: by_row(np.maximum, x, offsets, np.nan)),
    "reduce_sum": _of_list(_sum),
    "reduce_mean": _of_list(_mean),
    "reduce_prod": _of_list(lambda x, offsets: by_row(np.multiply, x, offsets, 1.0)),
}
"""Functions by name. ``std_dev`` and ``variance`` divide by n, ``pop_std_dev`` and ``pop_variance`` by n - 1."""
