"""`Reading`: rows as a request gives them, converted to a batch.

A few rows often have no values in some columns, files hardly ever: such columns get the type of their feature. Columns
of ids get the type that the model was trained on: 17 and "17" are different ids where they are hashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparrow.data import (
    IN_MEMORY,
    INTEGERS,
    Batch,
    Block,
    Converter,
    DataError,
    Feature,
    MissingColumn,
    Tables,
    kind_of,
    shown,
)
from sparrow.data.sources import Rows
from sparrow.embedding import Ragged

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


ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
"""The errors of values that do not make an array."""


NONE: Final = type(None)
PLAIN: Final = {
    pa.float64(): frozenset({int, float, NONE}),
    pa.int64(): frozenset({int, NONE}),
    pa.string(): frozenset({str, NONE}),
    pa.bool_(): frozenset({bool, NONE}),
}
"""The types of Python whose values make an array of a type without changing any."""


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
        self._numbers = {
            name for name, used in users.items() if all(f.part == "numbers" and f.width == 1 for f in used)
        }
        self._seen: dict[str, Any] = {name: pa.float64() for name in self._numbers}

    def steady(self, columns: Mapping[str, Any]) -> Any:
        """Return a record batch of lists whose values have the types of the requests before; None: some have others.

        All columns of one type are made into one array, and cut apart: a request of one row has many columns.

        >>> from sparrow.data import IdFeature, RawFeature
        >>> types = Types([RawFeature("price"), IdFeature("item", num_buckets=9, embedding_dim=4)])
        >>> _ = types.table({"price": [1.5], "item": [7]})
        >>> [str(kind) for kind in types.steady({"price": [1, None], "item": [2, 3]}).schema.types]
        ['double', 'int64']
        >>> types.steady({"price": [1, None], "item": [2, "3"]}) is None
        True
        """
        held: list[Any] = [columns.get(name) for name in self.columns]
        if any(type(values) is not list for values in held) or len({len(values) for values in held}) != 1:
            return None
        size, arrays = len(held[0]), dict[str, Any]()
        groups: dict[Any, list[str]] = {}
        for name in self.columns:
            groups.setdefault(self._seen.get(name), []).append(name)
        for kind, names in groups.items():
            if kind not in PLAIN:  # lists, or not known yet
                if not all(_are_alike(columns[name]) for name in names):
                    return None
                arrays |= {name: self._array(name, columns[name]) for name in names}
                continue
            values = [value for name in names for value in columns[name]]
            try:
                made = pa.array(values, kind) if PLAIN[kind].issuperset(map(type, values)) else None
            except ERRORS:  # such as an integer of more than 64 bits
                made = None
            if made is None:
                return None
            arrays |= {name: made.slice(size * place, size) for place, name in enumerate(names)}
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.columns], self.columns)

    def table(self, columns: Mapping[str, Any]) -> Any:
        """Return a record batch of the columns that the features read. Numbers are float64, with a point or without.

        >>> from sparrow.data import RawFeature
        >>> types = Types([RawFeature("price")])
        >>> [str(types.table({"price": prices, "other": "x"}).schema.types[0]) for prices in ([1], [1.5], [None, 2])]
        ['double', 'double', 'double']
        >>> types.table({"price": [2**63, None]}).column("price").to_pylist()
        [9.223372036854776e+18, None]
        """
        if (made := self.steady(columns)) is not None:
            return made
        names = [name for name in self.columns if name in columns] or list(columns)
        arrays = [self._array(name, columns[name]) for name in names]
        self._seen |= {n: own.type for n, own in zip(names, arrays, strict=True) if not _is_untyped(own.type)}
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
            self._seen.setdefault(name, known)
            table = table.set_column(index, name, table[index].cast(known))
        return table


def _are_alike(values: Sequence[Any]) -> bool:
    """Return whether values of several requests have one type: beside "1" or 1.5, an id of 1 would be another.

    >>> _are_alike([1, None]), _are_alike([[1], [], None]), _are_alike([1, "1"]), _are_alike([[1], [1.5]])
    (True, True, False, False)
    """
    kinds = set(map(type, values)) - {NONE}
    if kinds == {list}:
        kinds = {type(value) for row in values if row for value in row} - {NONE}
    return len(kinds) <= 1 and list not in kinds


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


KEPT: Final = 32
"""Schemas whose conversions stay in memory: requests of a few rows differ in them."""


class _Known(NamedTuple):
    """A schema that was checked, and the conversion of its columns."""

    schema: Any
    casts: Casts
    converter: Converter


class Reading:
    """Conversion of rows for some features. Columns and their types are checked once for each schema."""

    def __init__(self, features: Sequence[Feature], kinds: Mapping[str, str] = MappingProxyType({})) -> None:
        """``kinds``: whether columns of ids held integers or strings in training."""
        self._features = tuple(features)
        self._types = Types(features)
        self._kinds = {name: kind for name, kind in kinds.items() if name in self._types.columns}
        self._known: list[_Known] = []  # the latest first

    @property
    def columns(self) -> list[str]:
        """The columns that the features read."""
        return self._types.columns

    def batch(self, rows: Any) -> Batch:
        """Return a batch from an Arrow table, a record batch, or columns by name; a `Batch` is returned unchanged."""
        if isinstance(rows, Batch):
            return rows
        if isinstance(rows, Mapping):
            table = self._types.table(rows)
        elif isinstance(rows, pa.Table | pa.RecordBatch):
            table = rows
        else:
            table = Tables(rows).table  # a frame, or a TypeError
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        known = self._find(table.schema)
        if known is None:
            table = self._types.complete(self._selected(Tables(table)))
            known = self._find(table.schema) or self._checked(table)
        table = cast(table, known.casts)
        made, _ = known.converter.convert(Rows(table, IN_MEMORY, lambda row: f"row {row}"), "error")
        batch = made.to_batch()
        self._refuse_infinite(made, batch, table)
        return batch

    def together(self, parts: Sequence[Mapping[str, list[Any]]]) -> Batch | None:
        """Return the rows of several requests as one batch; None: their types differ, so each is read alone."""
        columns = {name: [value for part in parts for value in part[name]] for name in self.columns}
        steady = self._types.steady(columns)
        return None if steady is None else self.batch(steady)

    def _refuse_infinite(self, made: Block, batch: Batch, table: Any) -> None:
        """Refuse numbers that 32 bits cannot hold: the model would answer with no number."""
        places = made.layout.places.items()
        plain = {name: place for (part, name), place in places if part == "numbers" and place.dtype == np.float32}
        words = [place.word + i for place in plain.values() for i in range(place.width or 1)]
        if not np.isfinite(made.words[:, words].view(np.float32)).all():  # at once, quicker than one by one
            plain = {}
        for feature in self._features:
            if feature.name in plain:
                continue
            held = getattr(batch, feature.part)[feature.name]
            numbers = held.weights if feature.part == "ids" and isinstance(held, Ragged) else None
            if feature.part != "ids":
                numbers = held.values if isinstance(held, Ragged) else held
            if numbers is None or (finite := np.isfinite(numbers)).all():
                continue
            at = int(np.argmin(finite.reshape(len(numbers), -1).all(axis=1)))
            row = int(np.searchsorted(held.offsets, at, "right")) - 1 if isinstance(held, Ragged) else at
            value = shown(table[feature.columns[-1]][row].as_py())
            why = f"{value} is too large for feature '{feature.name}', which has 32 bits"
            raise DataError(why, IN_MEMORY, f"row {row}", feature.columns[-1])

    def _selected(self, given: Tables) -> Any:
        """Return the columns that the features read, or raise `DataError` for one that is missing."""
        try:
            given.open(self.columns)
        except MissingColumn as error:
            raise error.wanted_by_model() from None
        return given.table.select(self.columns)

    def _find(self, schema: Any) -> _Known | None:
        return next((known for known in self._known if known.schema.equals(schema)), None)

    def _checked(self, table: Any) -> _Known:
        kinds = dict(zip(table.schema.names, table.schema.types, strict=True))
        for feature in self._features:
            for column in feature.columns:
                if column in kinds and feature.lacks_lists(column, kinds[column]):
                    why = f"feature '{feature.name}' is a sequence, the column holds {kinds[column]}"
                    raise DataError(f"{why}; give lists, such as [7] instead of 7", IN_MEMORY, column=column)
        converter, wanted = Converter(self._features, (), (), ()), casts(self._kinds, table.schema)
        converter.check(Tables(cast(table.slice(0, 0), wanted)).open(self.columns))
        known = _Known(table.schema, wanted, converter)
        self._known = [known, *self._known[: KEPT - 1]]
        return known
