"""Columns of computed features: keys and numbers from 0 to 8, maps of these, words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.data.computed import registry
from sparrow.errors import ConfigError
from sparrow.samples.drawn import Drawn

_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "lookup": ("map", "number"),
    "match": ("nested", "number", "number"),
    "expr": ("number",) * 16,
    "combine": ("word",),
    "bool_mask": ("words", "marks"),
    "overlap": ("words", "words"),
    "kv_dot_product": ("pairs", "pairs"),
    "edit_distance": ("text", "text"),
    "bucketize": ("number",),
    "constant": (),
}
"""By the name of a computed column: the contents of its inputs, in their order."""
_FORMS: Final[dict[str, Callable[[int, int, Any], Any]]] = {
    "number": lambda a, b, record: a,
    "map": lambda a, b, record: f"{a}:{b}{record.map_separator}{b}:{a}",
    "nested": lambda a, b, record: f"{a}^{b}:{a},{a}:{b}|{b}^{a}:{b}",
    "word": lambda a, b, record: f"w{a}" if record.values else a,
    "marks": lambda a, b, record: f"{a > b}{record.separator}{a <= b}",
    "words": lambda a, b, record: f"w{a}{record.separator}w{b}",
    "pairs": lambda a, b, record: f"w{a}:{b}{record.separator}w{b}:{a}",
    "text": lambda a, b, record: f"text {a} {b}",
}


def of_rows(record: Any, drawn: Drawn) -> dict[str, list[Any]]:
    """Return the columns that a computed one reads."""
    return _columns(record, drawn, np.ones(drawn.rows, np.int64))


def of_elements(record: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> dict[str, list[Any]]:
    """Return the columns of one that is computed element by element: sequences, and columns that are none."""
    made: dict[str, list[Any]] = {}
    ends = np.cumsum(lengths)
    for column, values in _columns(record.compute_each, drawn, lengths).items():
        if column in record.sequences:
            parts = [values[end - length : end] for end, length in zip(ends, lengths, strict=True)]
            made[column] = [record.separator.join(map(str, part)) for part in parts]
    for column, values in of_rows(record.compute_each, drawn).items():
        made.setdefault(column, values)
    return made


def _columns(record: Any, drawn: Drawn, lengths: npt.NDArray[np.int64]) -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = {}
    name = registry.name_of(record)
    if name not in _FIELDS:
        raise ConfigError(f"the computed column '{name}' is not sampled; give the feature a column of its own")
    for field, given in zip(_FIELDS[name], record.inputs, strict=False):
        if not isinstance(given, str):
            made |= _columns(given, drawn, lengths)
            continue
        first, second = (drawn.elements(f"{given}/{i}", 9, lengths).tolist() for i in range(2))
        made[given] = [_FORMS[field](a, b, record) for a, b in zip(first, second, strict=True)]
    return made
