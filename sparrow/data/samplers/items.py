"""Items, and pairs of users and items, read into memory as the examples are."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.batch import Batch
from sparrow.data.block import concatenate
from sparrow.data.converter import Converter
from sparrow.data.errors import DataError
from sparrow.data.features import Feature
from sparrow.data.hashing import HashTable, mix64
from sparrow.data.labels import Label
from sparrow.data.samplers.base import ID, Choice
from sparrow.data.sources.base import BadRows, Rows, Source
from sparrow.data.values import element_type, is_list, is_text, places_of


class Items:
    """All rows of a source: features, keys and weights.

    Attributes:
      rows: the features of the items, and their ids as the key `ID`.
      labels, more_keys: columns of numbers, and further ones of keys, by name.
      choice: draws of items, in proportion to their weights if these are given.
      where, fingerprint: the file, for errors, and the fingerprint of the source.
    """

    def __init__(
        self,
        source: Source,
        features: Sequence[Feature],
        *,
        id_column: str,
        weight_column: str | None = None,
        labels: Sequence[Label] = (),
        more_keys: Sequence[str] = (),
        like: Mapping[str, Any] | None = None,
        bad_rows: BadRows = "error",
    ) -> None:
        keys = list(dict.fromkeys([id_column, *more_keys]))
        converter = Converter(features, labels, [] if weight_column is None else [weight_column], keys)
        types = {**dict.fromkeys(more_keys, (like or {}).get(id_column)), **(like or {})}
        read, self.where, self.fingerprint = read_all(source, converter, types, bad_rows)
        self.labels, self.more_keys = read.labels, {name: read.keys[name] for name in more_keys}
        self.rows = Batch(read.ids, read.numbers, read.sequences, keys={ID: read.keys[id_column]})
        if not len(self.rows):
            raise DataError("no item can be used", self.where)
        weights = None if weight_column is None else read.weights[weight_column]
        if weights is not None and not weights.sum() > 0:
            raise DataError("all weights are 0: no item can be drawn", self.where, column=weight_column)
        self.choice = Choice(len(self.rows), weights)

    @functools.cached_property
    def _places(self) -> HashTable:
        return HashTable(mix64(self.rows.keys[ID].view(np.uint64)))

    def find(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
        """Return the rows of items by their keys; -1 for unknown ones. Of an id that is there twice, the first."""
        return self._places.find(mix64(keys.view(np.uint64)))


def read_all(
    source: Source, converter: Converter, like: Mapping[str, Any] | None, bad_rows: BadRows
) -> tuple[Batch, str, str]:
    """Return all rows of a source, its first file, and its fingerprint."""
    reader = source.open(converter.columns)
    where = reader.schemas[0][0]
    if not reader.num_chunks:
        raise DataError("there are no items", where)
    converter.check(reader)
    found = [
        (column, getattr(feature, "separator", None)) for feature in converter.features for column in feature.columns
    ]
    separators = {column: separator for column, separator in found if separator is not None}
    parts = [
        converter.convert(alike(reader.read(chunk, bad_rows), like or {}, separators), bad_rows)[0]
        for chunk in range(reader.num_chunks)
    ]
    return concatenate(parts).to_batch(), where, reader.fingerprint


def alike(rows: Rows, like: Mapping[str, Any], separators: Mapping[str, str]) -> Rows:
    """Return the rows with strings and numbers where the examples have them.

    Where the examples have lists, strings of items are cut at the separator of their column.
    """
    table = rows.table
    for place, field in enumerate(table.schema):
        if (wanted := like.get(field.name)) is None:
            continue
        kind, column = element_type(wanted), table[place]
        is_same = is_text(kind) == is_text(element_type(field.type))
        is_cut = is_list(wanted) and is_text(field.type) and field.name in separators
        if not is_cut and (is_list(wanted) != is_list(field.type) or (is_list(wanted) and not is_same)):
            raise DataError(f"holds {field.type}, the examples {wanted}; make them alike", rows.file, column=field.name)
        if is_same and not is_cut:
            continue
        try:
            if is_cut:
                present = pc.if_else(pc.equal(column, ""), None, column)
                column = pc.split_pattern(present, separators[field.name]).cast(pa.list_(kind))
            else:
                column = column.cast(element_type(field.type)) if pa.types.is_dictionary(field.type) else column
                column = column.cast(pa.string() if is_text(kind) else kind)
        except pa.ArrowInvalid as error:
            why = f"cannot be read as {'lists of ' * is_cut}{kind}, which the examples hold: {error}"
            raise DataError(why, rows.file, column=field.name) from None
        table = table.set_column(place, field.name, column)
    return dataclasses.replace(rows, table=table)


Keys = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class EdgeTable:
    """Pairs of a user and an item, one per row.

    Attributes:
      source: the rows.
      user_column: the column of the user's id.
      item_column: the column of the item's id.
    """

    source: Source
    user_column: str
    item_column: str


class Neighbors(NamedTuple):
    """The items of some users: ``rows`` is the place of a user in the request, ``items`` the keys of its items."""

    rows: npt.NDArray[np.int64]
    items: Keys


class Edges:
    """The pairs of an `EdgeTable`, sorted by user.

    >>> from sparrow.data import Tables
    >>> table = EdgeTable(Tables({"user": [2, 1, 2], "item": [7, 8, 9]}), "user", "item")
    >>> found = Edges(table).of(np.array([2, 5, 1]))
    >>> found.rows.tolist(), found.items.tolist()
    ([0, 0, 2], [7, 9, 8])
    """

    def __init__(self, table: EdgeTable, like: Mapping[str, Any] | None = None, bad_rows: BadRows = "error") -> None:
        """Read all pairs. ``like``: the types of both columns in the examples."""
        converter = Converter([], [], [], list(dict.fromkeys([table.user_column, table.item_column])))
        read, self.where, fingerprint = read_all(table.source, converter, like, bad_rows)
        self.fingerprint = f"{fingerprint}/{table.user_column}/{table.item_column}"
        users = read.keys[table.user_column]
        if not len(users):
            raise DataError("there are no pairs", self.where)
        order = np.argsort(users, kind="stable")
        self.items: Keys = np.ascontiguousarray(read.keys[table.item_column][order])
        self._users, first = np.unique(users[order], return_index=True)
        self._ends = np.append(first, len(order))

    def of(self, users: Keys) -> Neighbors:
        """Return the items of users, in the order of the table."""
        place = np.minimum(np.searchsorted(self._users, users), len(self._users) - 1)
        known = self._users[place] == users
        lengths = np.where(known, self._ends[place + 1] - self._ends[place], 0)
        return Neighbors(np.repeat(np.arange(len(users)), lengths), self.items[places_of(self._ends[place], lengths)])
