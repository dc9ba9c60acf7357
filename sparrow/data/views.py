"""Columns of views, which Polars and other libraries hold, and of bytes: plain strings for all that read them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def plain_kind(kind: Any) -> Any:
    """Return an Arrow type with strings for views and bytes, also in lists and dictionaries.

    >>> print(plain_kind(pa.list_(pa.string_view())), plain_kind(pa.binary()), plain_kind(pa.int8()))
    list<item: large_string> large_string int8
    """
    types = pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return pa.large_string()
    if types.is_dictionary(kind):
        inner = plain_kind(kind.value_type)
        return kind if inner == kind.value_type else pa.dictionary(kind.index_type, inner, kind.ordered)
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        inner = plain_kind(kind.value_type)
        if inner == kind.value_type:
            return kind
        field = kind.value_field.with_type(inner)
        if types.is_fixed_size_list(kind):
            return pa.list_(field, kind.list_size)
        return pa.list_(field) if types.is_list(kind) else pa.large_list(field)
    return kind


def without_views(table: Any, *, only_strings: bool = False) -> Any:
    """Return an Arrow table with plain strings for views and bytes.

    A column of bytes that are not UTF-8 is an ``ArrowInvalid``; with ``only_strings`` it stays as it is.

    >>> without_views(pa.table({"word": pa.array(["a"], pa.string_view())})).schema.types
    [DataType(large_string)]
    """
    for index, field in enumerate(table.schema):
        if (kind := plain_kind(field.type)) != field.type:
            try:
                table = table.set_column(index, field.with_type(kind), table[index].cast(kind))
            except pa.ArrowInvalid:
                if not only_strings:
                    raise
    return table
