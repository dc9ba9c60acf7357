"""Types for columns as requests give them: a few rows often have no values in some columns, files hardly ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from sparrow.data import IN_MEMORY, DataError, Feature, shown

ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""The errors of values that do not make an array."""


class Types:
    """The types of columns, as steady as possible from request to request: each new combination must be checked.

    Attributes:
      columns: the columns that the features read.
    """

    def __init__(self, features: Sequence[Feature]) -> None:
        users: dict[str, list[Feature]] = {}
        for feature in features:
            for column in feature.columns:
                users.setdefault(column, []).append(feature)
        self.columns = list(users)
        self._single = {name for name, used in users.items() if any(feature.is_single(name) for feature in used)}
        self._numbers = {name for name, used in users.items() if all(_is_number(feature) for feature in used)}
        self._seen: dict[str, Any] = {}

    def table(self, columns: Mapping[str, Any]) -> Any:
        """Return a record batch of the columns that the features read. Numbers are float64, with a point or without.

        >>> from sparrow.data import RawFeature
        >>> types = Types([RawFeature("price")])
        >>> [str(types.table({"price": prices, "other": "x"}).schema.types[0]) for prices in ([1], [1.5], [None, 2])]
        ['double', 'double', 'double']
        >>> types.table({"price": [2**63, None]}).column("price").to_pylist()
        [9.223372036854776e+18, None]
        """
        names = [name for name in self.columns if name in columns] or list(columns)
        arrays = [self._array(name, columns[name]) for name in names]
        if len({len(array) for array in arrays}) > 1:
            lengths = ", ".join(f"'{name}' {len(array)}" for name, array in zip(names, arrays, strict=True))
            raise DataError(f"the columns have different numbers of rows: {lengths}", IN_MEMORY)
        return pa.RecordBatch.from_arrays(arrays, names)

    def _array(self, name: str, values: Any) -> Any:
        if name in self._numbers and isinstance(values, list):
            try:
                return pa.array(values, pa.float64())
            except ERRORS:
                if all(value is None or isinstance(value, int | float) for value in values):  # above 2**53
                    return pa.array([None if value is None else float(value) for value in values], pa.float64())
                # else not numbers: lists, or strings that hold some
        try:
            array = pa.array(values) if not isinstance(values, pa.Array | pa.ChunkedArray) else values
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except ERRORS as error:
            raise _explained(name, values, error) from None

    def complete(self, table: Any) -> Any:
        """Return the table with a type for each column of missing values or empty lists.

        The type is the one that the column had before. Until then it is strings, which every feature reads.

        >>> from sparrow.data import IdFeature
        >>> types = Types([IdFeature(name, num_buckets=9, embedding_dim=4) for name in ("item", "seen")])
        >>> [str(kind) for kind in types.complete(pa.table({"item": [None], "seen": [[]]})).schema.types]
        ['list<item: string>', 'list<item: string>']
        >>> _ = types.complete(pa.table({"item": [3], "seen": [[7]]}))
        >>> [str(kind) for kind in types.complete(pa.table({"item": [None], "seen": [[]]})).schema.types]
        ['int64', 'list<item: int64>']
        """
        for index, (name, kind) in enumerate(zip(table.schema.names, table.schema.types, strict=True)):
            if not _is_untyped(kind):
                self._seen[name] = kind
                continue
            is_null = pa.types.is_null(kind)
            strings = pa.string() if is_null and name in self._single else pa.list_(pa.string())
            known = self._seen.get(name, strings)
            # Empty lists stay lists, and missing values of a feature that replaces them stay single.
            if (not is_null or name in self._single) and known.num_fields != strings.num_fields:
                known = strings
            table = table.set_column(index, name, table[index].cast(known))
        return table


def _explained(name: str, values: Any, error: Exception) -> DataError:
    """Return the error of the first value that no column can hold, or that is of another type than the ones before."""
    first = None
    for row, value in enumerate(values if isinstance(values, Sequence) else ()):
        where = (IN_MEMORY, f"row {row}", name)
        try:
            kind = pa.array([value]).type
        except ERRORS as own:
            return DataError(f"{shown(value)} cannot be read: {str(own).splitlines()[0]}", *where)
        first = kind if first is None and not _is_untyped(kind) else first
        try:
            pa.array([value], first)
        except ERRORS:
            return DataError(f"{shown(value)} is of another type than the values before it, {first}", *where)
    return DataError(f"cannot be read: {str(error).splitlines()[0]}", IN_MEMORY, column=name)


def _is_untyped(kind: Any) -> bool:
    return bool(pa.types.is_null(kind)) or bool(pa.types.is_list(kind) and pa.types.is_null(kind.value_type))


def _is_number(feature: Feature) -> bool:
    """Return whether a feature reads one number of each row."""
    return feature.part == "numbers" and feature.width == 1
