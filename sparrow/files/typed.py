"""JSON: objects of files, and records whose values are checked against their declared types."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any


def json_object(path: Path) -> dict[str, Any]:
    """Return the object that a file holds; an empty one where it cannot be read, or holds something else."""
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}


def typed(kind: Any, value: Any, where: str = "") -> Any:
    """Return the value as a ``kind``: a dataclass, list, dict with string keys, union, or plain type of JSON.

    A value of another type, a missing field without a default and an unknown one are a `ValueError` that names the
    place. Integers are not accepted as booleans, nor the other way round.

    >>> @dataclasses.dataclass
    ... class Table:
    ...     rows: int
    ...     dtype: str
    >>> typed(dict[str, Table], {"items": {"rows": 7, "dtype": "float32"}})
    {'items': Table(rows=7, dtype='float32')}
    >>> typed(dict[str, Table], {"items": {"rows": "many", "dtype": "float32"}})
    Traceback (most recent call last):
    ValueError: items.rows must be of type int, got str
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, _of(dict, value, where), where)
    if origin is list:
        return [typed(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(_of(list, value, where))]
    if origin is dict:
        return {key: typed(arguments[1], item, _at(where, key)) for key, item in _of(dict, value, where).items()}
    if origin in (types.UnionType, typing.Union):
        if not any(_is(argument, value) for argument in arguments):
            names = " or ".join("null" if argument is types.NoneType else argument.__name__ for argument in arguments)
            raise ValueError(f"{where} must be of type {names}, got {type(value).__name__}")
        return value
    return _of(kind, value, where)


def _record(kind: Any, fields: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    if unknown := fields.keys() - hints.keys():
        raise ValueError(f"{_at(where, min(unknown))} is not a known field")
    needed = {field.name for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING}
    if missing := needed - fields.keys():
        raise ValueError(f"{_at(where, min(missing))} is missing")
    return kind(**{name: typed(hints[name], value, _at(where, name)) for name, value in fields.items()})


def _of(kind: Any, value: Any, where: str) -> Any:
    if not _is(kind, value):
        raise ValueError(f"{where or 'the file'} must be of type {kind.__name__}, got {type(value).__name__}")
    return value


def _is(kind: Any, value: Any) -> bool:
    return type(value) is kind or (kind is float and type(value) is int)


def _at(where: str, name: str) -> str:
    name = name if len(name) <= 60 else f"{name[:57]}..."
    return f"{where}.{name}" if where else name
