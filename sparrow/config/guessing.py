"""`guess`: features and the task for the columns of a file, each with its reason."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data import DataError
from sparrow.registry import nearest

DIM: Final = 16
FEW: Final = 50
"""Integers with at most this many different values are ids."""
TARGETS: Final = ("label", "target", "click", "clicked", "is_click", "y", "like", "liked", "buy", "purchase", "rating")
"""Columns that look like the thing to predict."""
ID_NAME: Final = re.compile(
    r"(^|_)(ids?|user|item|code|type|kind|category|brand|city|country|zip|movie|ad)(_|$)", re.IGNORECASE
)
SEPARATORS: Final = ("|", ";", ",")
LONG_TEXT: Final = 60
"""Strings that are longer on average, and nearly all different, are texts."""


@dataclasses.dataclass(frozen=True)
class Guess:
    """A column: the fields of its feature, None where it is left out, and the reason."""

    column: str
    feature: dict[str, Any] | None
    why: str


def guess(table: pa.Table, target: str | None, rows: int) -> tuple[str, dict[str, Any], list[Guess]]:
    """Return the column to predict, the fields of its task, and a guess for each other column.

    >>> table = pa.table({"user_id": [1, 2, 3, 1], "price": [1.5, 2.5, 0.5, 9.0], "click": [0, 1, 0, 1]})
    >>> target, task, guesses = guess(table, None, 4)
    >>> target, task["losses"], [(g.column, g.feature["kind"]) for g in guesses]
    ('click', ['binary_cross_entropy'], [('user_id', 'id'), ('price', 'raw')])
    """
    target = _target(table, target)
    guesses = [_of_column(name, table[name].drop_null(), rows) for name in table.column_names if name != target]
    if not any(held.feature and held.feature["kind"] == "id" for held in guesses):
        guesses = [_in_buckets(held, table) for held in guesses]
    if not any(held.feature is not None for held in guesses):
        raise DataError("no column can be a feature")
    return target, _task(target, table[target].drop_null()), guesses


def _target(table: pa.Table, target: str | None) -> str:
    names: list[str] = table.column_names
    if target is not None:
        if target not in names:
            raise DataError(f"there is no such column: {nearest(target, names)}", column=target)
        return target
    found = [name for wanted in TARGETS for name in names if name.lower() == wanted]
    if not found:
        raise DataError(f"name the column to predict with --target; there are {', '.join(names)}")
    return found[0]


def _task(target: str, values: Any) -> dict[str, Any]:
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"holds {kind}; the column to predict must hold numbers", column=target)
    numbers = np.asarray(values.cast(pa.float64()), np.float64)
    if set(np.unique(numbers)) <= {0.0, 1.0}:
        return {"label": target, "losses": ["binary_cross_entropy"], "metrics": ["auc", "log_loss", "calibration"]}
    return {"label": target, "losses": ["l2"], "metrics": ["rmse", "mae"]}


def _of_column(name: str, values: Any, rows: int) -> Guess:
    kind = values.type
    if not len(values):
        return Guess(name, None, "holds no values")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _of_lists(name, values, rows)
    if pa.types.is_dictionary(kind):
        return _of_column(name, values.cast(kind.value_type), rows)
    if pa.types.is_floating(kind):
        return _number(name, values)
    if pa.types.is_integer(kind):
        distinct = pc.count_distinct(values).as_py()
        if distinct == len(values) == rows > FEW:
            return Guess(name, None, "is different in every row")
        if distinct > FEW and not ID_NAME.search(name):
            return _number(name, values)
        return _ids(name, values, rows, {})
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _of_strings(name, values, rows)
    return Guess(name, None, f"holds {kind}, which no feature reads")


def _of_strings(name: str, values: Any, rows: int) -> Guess:
    distinct = pc.count_distinct(values).as_py()
    length = pc.mean(pc.utf8_length(values)).as_py()
    if distinct > 0.5 * len(values) and length > LONG_TEXT:
        return Guess(name, None, f"holds texts of {length:.0f} characters")
    if distinct == len(values) == rows > FEW:
        return Guess(name, None, "is different in every row")
    for separator in SEPARATORS:
        if pc.mean(pc.match_substring(values, separator).cast(pa.int8())).as_py() > 0.2:
            words = pc.list_flatten(pc.split_pattern(values, separator))
            return _ids(name, words, rows, {"separator": separator, "pooling": "mean"})
    return _ids(name, values, rows, {})


def _of_lists(name: str, values: Any, rows: int) -> Guess:
    lengths, inner = pc.list_value_length(values), pc.list_flatten(values)
    if pa.types.is_floating(inner.type):
        if pc.min_max(lengths)["min"] != pc.min_max(lengths)["max"]:
            return Guess(name, None, "holds lists of numbers of different lengths")
        return Guess(name, {"kind": "raw", "name": name, "dim": lengths[0].as_py()}, "lists of numbers")
    if not len(inner) or not (pa.types.is_integer(inner.type) or pa.types.is_string(inner.type)):
        return Guess(name, None, f"holds {values.type}, which no feature reads")
    return _ids(name, inner, rows, {"pooling": "mean"})


def _ids(name: str, values: Any, rows: int, more: dict[str, Any]) -> Guess:
    distinct = pc.count_distinct(values).as_py()
    # In a sample most ids of a long tail are missing: count on as many more as the sample had new ones.
    expected = distinct if len(values) >= rows or distinct < 0.1 * len(values) else distinct * rows / len(values)
    buckets = _rounded(max(100, 4 * expected))
    feature = {"kind": "id", "name": name, "hash_bucket_size": buckets, "embedding_dim": DIM, **more}
    return Guess(name, feature, f"{distinct:,} different values seen")


def _number(name: str, values: Any) -> Guess:
    numbers = np.asarray(values.cast(pa.float64()), np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers) or numbers.min() == numbers.max():
        return Guess(name, None, "is one number throughout")
    why = f"numbers from {numbers.min():.4g} to {numbers.max():.4g}"
    feature: dict[str, Any] = {"kind": "raw", "name": name}
    if numbers.min() >= 0 and numbers.max() > 20 * max(float(np.median(numbers)), 1e-9):
        feature["log"] = True
        numbers, why = np.log1p(numbers), f"{why}, a few far above the others"
    std = float(numbers.std())
    return Guess(name, {**feature, "mean": float(f"{numbers.mean():.4g}"), "std": float(f"{std:.4g}") or 1.0}, why)


def _in_buckets(held: Guess, table: pa.Table) -> Guess:
    """Return a number as an id of its bucket: a model needs a table."""
    if held.feature is None or "dim" in held.feature:
        return held
    numbers = np.asarray(table[held.column].drop_null().cast(pa.float64()), np.float64)
    cuts: Sequence[float] = sorted({float(f"{x:.4g}") for x in np.nanquantile(numbers, np.arange(1, 10) / 10)})
    feature = {"kind": "raw", "name": held.column, "boundaries": list(cuts), "embedding_dim": DIM}
    return Guess(held.column, feature, f"{held.why}, cut into {len(cuts) + 1} buckets")


def _rounded(value: float) -> int:
    """Return the next number of two digits and zeros.

    >>> _rounded(1234)
    1300
    """
    unit = 10 ** max(0, int(math.log10(value)) - 1)
    return int(-(-value // unit) * unit)
