"""Columns of ids in the type that the model was trained on: 17 and "17" are different ids where they are hashed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from sparrow.data import IN_MEMORY, INTEGERS, DataError, kind_of, shown

Casts = Mapping[str, Any]


def casts(kinds: Mapping[str, str], schema: Any) -> Casts:
    """Return the Arrow types that columns of ids must be converted to, or raise `DataError` where they cannot be.

    >>> casts({"item": "integers", "tags": "strings"}, pa.schema({"item": pa.string(), "tags": pa.list_(pa.int8())}))
    {'item': DataType(int64), 'tags': ListType(list<item: string>)}
    """
    made = {}
    for name, wanted in kinds.items():
        held = schema.field(name).type
        given = kind_of(held)
        if given == wanted or (given is None and wanted == INTEGERS):  # numbers without a fraction are integers
            continue
        if given is None:
            raise DataError(f"the model was trained on strings, the column holds {held}", IN_MEMORY, column=name)
        element = pa.int64() if wanted == INTEGERS else pa.string()
        made[name] = pa.list_(element) if held.num_fields else element
    return made


def cast(table: Any, wanted: Casts) -> Any:
    """Return a table with converted columns, or raise `DataError` for a string that is no integer."""
    for name, kind in wanted.items():
        index, column = table.schema.get_field_index(name), table[name]
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        try:
            made = column.cast(kind)
        except pa.ArrowInvalid:  # some string is no integer, or is empty: read them one by one
            rows = enumerate(column.to_pylist())
            made = pa.chunked_array([pa.array([_read(value, row, name) for row, value in rows], kind)])
        table = table.set_column(index, name, made)
    return table


def _read(value: Any, row: int, name: str) -> Any:
    if isinstance(value, list):
        return [_read(one, row, name) for one in value]
    if value is None or not value.strip():
        return None
    try:
        if not -(1 << 63) <= (made := int(value)) < 1 << 63:
            raise ValueError
    except ValueError:
        why = f"{shown(value)} is not an integer, and the model was trained on integers"
        raise DataError(why, IN_MEMORY, f"row {row}", name) from None
    return made
