"""`Edges`: pairs of a user and an item, such as everything that a user ever bought, and the items of many users."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.data.converter import Converter
from sparrow.data.errors import DataError
from sparrow.data.samplers.items import read_all
from sparrow.data.sources.base import BadRows, Source
from sparrow.data.values import places_of

Keys = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class EdgeTable:
    """A source of pairs, one per row.

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
