"""`Index`: items by id, and the best of them for each query; `ItemIndex` finds them by their vectors."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.errors import shown
from sparrow.kernels.search import Excluded, RowsOnDevice, best_rows
from sparrow.registry import nearest
from sparrow.retrieval.approximate import Approximate

Where = Mapping[str, Any]
"""By attribute: a value, a list of allowed values, or a range ``{"min": ..., "max": ...}``, both ends included."""


def passing(attributes: Any, where: Where) -> npt.NDArray[np.bool_]:
    """Return which items pass all conditions. An item without a value passes none; of a list, one value suffices.

    >>> items = pa.table({"genre": ["drama", "crime", None], "year": [1990, 2001, 2010]})
    >>> passing(items, {"genre": ["crime", "drama"], "year": {"min": 1995}}).tolist()
    [False, True, False]
    """
    mask = np.ones(attributes.num_rows, np.bool_)
    for name, condition in where.items():
        if name not in attributes.column_names:
            raise ValueError(f"items have no attribute '{name}': {nearest(name, attributes.column_names)}")
        mask &= _meets(name, attributes[name].combine_chunks(), condition)
    return mask


def _meets(name: str, column: Any, condition: Any) -> npt.NDArray[np.bool_]:
    types = pa.types
    if not any(is_kind(column.type) for is_kind in (types.is_list, types.is_large_list, types.is_fixed_size_list)):
        return _values_meet(name, column, condition)
    met = np.zeros(len(column), np.bool_)
    met[owners_of(column)[_values_meet(name, column.flatten(), condition)]] = True
    return met


def owners_of(lists: Any) -> Numbers:
    """Return the place of the list that holds each of ``lists.flatten()``, which has no values of missing lists."""
    return np.repeat(np.arange(len(lists)), pc.fill_null(pc.list_value_length(lists), 0).to_numpy())


def _values_meet(name: str, values: Any, condition: Any) -> npt.NDArray[np.bool_]:
    if pa.types.is_dictionary(values.type):  # as Parquet files give strings
        words = np.append(_values_meet(name, values.dictionary, condition), False)
        found: npt.NDArray[np.bool_] = words[pc.fill_null(values.indices.cast(pa.int64()), len(words) - 1).to_numpy()]
        return found
    try:
        if isinstance(condition, Mapping):
            if not condition or set(condition) - {"min", "max"}:
                raise ValueError(f"a range of '{name}' is {{'min': ..., 'max': ...}}, got {dict(condition)}")
            met = pc.is_valid(values)
            if "min" in condition:
                met = pc.and_(met, pc.greater_equal(values, pa.scalar(condition["min"])))
            if "max" in condition:
                met = pc.and_(met, pc.less_equal(values, pa.scalar(condition["max"])))
        else:
            wanted = condition if isinstance(condition, list | tuple | set) else [condition]
            met = pc.and_(pc.is_valid(values), pc.is_in(values, value_set=pa.array(list(wanted), values.type)))
    except (pa.ArrowException, TypeError, OverflowError) as error:
        why = f"attribute '{name}' holds {values.type}, and cannot be compared with {shown(condition)}"
        raise ValueError(f"{why}: {str(error).splitlines()[0]}") from None
    made: npt.NDArray[np.bool_] = pc.fill_null(met, False).to_numpy(zero_copy_only=False)
    return made


Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

ROW: Final = "row"
"""The column of a row's number, where no column of users is known."""
CANDIDATES: Final = 100
"""Items of each user that a second model orders by default."""


class Found(NamedTuple):
    """The best items of each query, the best first.

    Attributes:
      rows: (queries, k) places in the index; -1: fewer items than k may be found.
      scores: (queries, k), -inf where there is none.
      ids: the ids of all items of the index.
      item: the name of their column.
    """

    rows: Numbers
    scores: Floats
    ids: Any
    item: str = "item"

    def table(self, keys: Any = None) -> Any:
        """Return a row per found item: its query's row of ``keys``, the item, ``score``, and ``rank`` from 1 on."""
        queries, places = np.nonzero(self.rows >= 0)
        columns = {} if keys is None else {name: keys[name].take(pa.array(queries)) for name in keys.column_names}
        columns[self.item] = self.ids.take(pa.array(self.rows[queries, places]))
        columns["score"] = pa.array(self.scores[queries, places])
        columns["rank"] = pa.array((places + 1).astype(np.int32))
        return pa.table(columns)


Rank = Callable[[Any, Found, int], Found]
"""Returns the best of the items that were found for each user, by another order: ``rank(users, found, k)``."""


def paired(users: Any, rows: Numbers, names: Sequence[str], items: Mapping[str, Any]) -> Any:
    """Return the columns of pairs of a user and an item: those of ``items``, and ``names`` of ``users`` by row.

    ``users`` is an Arrow table, or columns by name, whose values may be of any type; the pairs are of the same kind.
    """
    is_table = isinstance(users, pa.Table)
    held = users.column_names if is_table else users
    given = {name: _taken(users[name], rows) for name in names if name in held and name not in items}
    return pa.table({**given, **items}) if is_table else {**given, **items}


def _taken(column: Any, rows: Numbers) -> Any:
    return [column[row] for row in rows] if isinstance(column, list) else column.take(pa.array(rows))


def rows_in(users: Any) -> int:
    """Return the number of rows of an Arrow table, or of columns by name."""
    return len(next(iter(users.values()), ())) if isinstance(users, Mapping) else len(users)


@dataclasses.dataclass(frozen=True)
class Index(abc.ABC):
    """Items, and a search for the best of them.

    Attributes:
      ids: the ids, each once, as the catalog has them.
      attributes: columns to filter by; None: there are none.
      item: the column of items' ids in the data.
      user: the column of users' ids in the data; None: it is not known.
    """

    ids: Any
    attributes: Any = dataclasses.field(default=None, kw_only=True)
    item: str = dataclasses.field(default="item", kw_only=True)
    user: str | None = dataclasses.field(default=None, kw_only=True)

    reads_rows: ClassVar[bool] = False
    """Whether queries are rows of users, which a model reads during the search, instead of vectors."""

    def __post_init__(self) -> None:
        if self.ids.null_count:
            raise ValueError(f"{self.ids.null_count} items have no id; leave them out of the catalog")
        if len(pc.unique(self.ids)) < len(self.ids):
            counts = pc.value_counts(self.ids).to_pylist()
            again = next(entry["values"] for entry in counts if entry["counts"] > 1)
            raise ValueError(f"the item {again!r} is in the catalog more than once; keep one row per item")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def catalog(self) -> dict[str, Any]:
        held = {} if self.attributes is None else {n: self.attributes[n] for n in self.attributes.column_names}
        return {**held, self.item: self.ids}

    def rows(self, ids: Any) -> Numbers:
        """Return the places of ids; -1: the id is not in the index."""
        try:
            given = pa.array(ids) if not isinstance(ids, pa.Array | pa.ChunkedArray) else ids
            given = given if given.type == self.ids.type else given.cast(self.ids.type)
        except (pa.ArrowException, TypeError, OverflowError) as error:
            why = str(error).splitlines()[0]
            raise ValueError(f"ids of items are of type {self.ids.type}: {why}") from None
        found = pc.index_in(given, value_set=self.ids)
        places: Numbers = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return places

    def search(
        self,
        queries: Any,
        k: int,
        *,
        exclude: Sequence[Any] | None = None,
        allow: Any = None,
        where: Where | None = None,
        exact: bool = False,
    ) -> Found:
        """Return the ``k`` best items for each query.

        Args:
          queries: (queries, dim) vectors; where the index `reads_rows`, rows of users, an Arrow table or columns.
          k: items for each query.
          exclude: for each query, the ids that it must not find, such as items that a user has seen. Ids that are not
            in the index are ignored.
          allow: ids that may be found; None: all.
          where: conditions on the items' attributes.
          exact: whether to search all items where the index would leave some out to be quicker.
        """
        fields.integer("recommend: k", k)
        allowed = self._allowed(allow, where)
        excluded = None if exclude is None else self._excluded(exclude, rows_in(queries))
        scores, rows = self._best(queries, k, allowed, excluded, exact)
        return Found(rows, scores, self.ids, self.item)

    @abc.abstractmethod
    def _best(
        self, queries: Any, k: int, allowed: Mask | None, excluded: Excluded | None, exact: bool
    ) -> tuple[Floats, Numbers]:
        """Return the scores and places of the best items, (queries, k) each."""

    def recommended(self, users: Any, queries: Any, k: int, rank: Rank | None = None, **options: Any) -> Any:
        """Return a row per user and item: the user, or the row's number where it is not known, item, score and rank.

        ``users``: an Arrow table with a row per query. ``options``: those of `found`.
        """
        known = self.user is not None and self.user in users.column_names
        keys = users.select([self.user]) if known else pa.table({ROW: np.arange(users.num_rows)})
        return self.found(users, queries, k, rank, **options).table(keys)

    def found(
        self, users: Any, queries: Any, k: int, rank: Rank | None = None, candidates: int = CANDIDATES, **options: Any
    ) -> Found:
        """Return the ``k`` best items of each row of ``users``, by ``rank`` among the ``candidates`` best of `search`.

        ``options``: those of `search`. Without ``rank`` the result is that of `search`.
        """
        if rank is None:
            return self.search(queries, k, **options)
        fields.integer("recommend: candidates", candidates)
        return rank(users, self.search(queries, max(k, candidates), **options), k)

    def _allowed(self, allow: Any, where: Where | None) -> Mask | None:
        if allow is None and not where:
            return None
        mask = np.ones(len(self.ids), np.bool_)
        if allow is not None:
            named = self.rows(allow)
            mask[:] = False
            mask[named[named >= 0]] = True
        if where:
            if self.attributes is None:
                raise ValueError("the index has no attributes to filter by; name them when it is made")
            mask &= passing(self.attributes, where)
        return mask

    def _excluded(self, exclude: Sequence[Any], queries: int) -> Excluded:
        try:
            lists = pa.array(exclude) if not isinstance(exclude, pa.Array | pa.ChunkedArray) else exclude
        except (pa.ArrowException, TypeError, OverflowError) as error:
            why = str(error).splitlines()[0]
            raise ValueError(f"exclude must hold lists of ids of type {self.ids.type}: {why}") from None
        lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
        if len(lists) != queries:
            raise ValueError(f"exclude has {len(lists)} lists for {queries} queries; give one list per query")
        if not pa.types.is_null(lists.type) and not lists.type.num_fields:
            raise ValueError(f"exclude must hold a list of ids for each query, got {lists.type}; write [['a'], ['b']]")
        if pa.types.is_null(lists.type) or pa.types.is_null(lists.type.value_type):
            return Excluded(np.zeros(queries + 1, np.int64), np.zeros(0, np.int64))
        owners, places = owners_of(lists), self.rows(lists.flatten())
        owners, places = owners[places >= 0], places[places >= 0]
        order = np.lexsort((places, owners))
        offsets = np.searchsorted(owners[order], np.arange(queries + 1))
        return Excluded(offsets.astype(np.int64), places[order])


@dataclasses.dataclass(frozen=True)
class ItemIndex(Index):
    """Items and their vectors: the best items have the largest dot products with a query.

    >>> index = ItemIndex(pa.array(["a", "b", "c"]), np.array([[1, 0], [0, 1], [1, 1]], np.float32))
    >>> index
    ItemIndex(3 items, vectors of 2 numbers)
    >>> index.search([[2.0, 1.0]], 2, exclude=[["c"]]).table().to_pydict()
    {'item': ['a', 'b'], 'score': [2.0, 1.0], 'rank': [1, 2]}

    Attributes:
      vectors: (items, dim); a GPU, where there is one, gets a copy at the first exact search.
      approximate: a FAISS index of the same vectors; None: search is exact.
    """

    vectors: Floats
    approximate: Approximate | None = None

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.vectors):
            raise ValueError(f"{len(self.ids)} ids were given for {len(self.vectors)} vectors; give one id per vector")
        super().__post_init__()
        if not np.isfinite(self.vectors).all():
            raise ValueError("some items have vectors with NaN or infinity; look at the training of the model")

    def __repr__(self) -> str:
        columns = "" if self.attributes is None else f", attributes {', '.join(self.attributes.column_names)}"
        return f"ItemIndex({len(self):,} items, vectors of {self.vectors.shape[1]} numbers{columns})"

    def _best(
        self, queries: Any, k: int, allowed: Mask | None, excluded: Excluded | None, exact: bool
    ) -> tuple[Floats, Numbers]:
        wanted = np.ascontiguousarray(queries, np.float32)
        if wanted.ndim != 2 or wanted.shape[1] != self.vectors.shape[1]:
            raise ValueError(f"queries must be (queries, {self.vectors.shape[1]}), got {wanted.shape}")
        if self.approximate is not None and not exact:
            return self.approximate.search(wanted, k, allowed, excluded)
        if self._on_device is not None:
            return self._on_device.best(wanted, k, allowed, excluded)
        return best_rows(wanted, [self.vectors], k, allowed=allowed, excluded=excluded)

    @functools.cached_property
    def _on_device(self) -> RowsOnDevice | None:
        return RowsOnDevice.fitting(self.vectors)


class RowModel(NamedTuple):
    """A model that reads rows: what a search needs of it.

    Attributes:
      predict: returns predictions by task from an Arrow table, or columns by name.
      columns: the columns that it reads.
      tasks: its tasks, in order.
    """

    predict: Callable[[Any], Mapping[str, Any]]
    columns: Sequence[str]
    tasks: Sequence[str]


@dataclasses.dataclass(frozen=True)
class RowIndex(Index):
    """Items that a model finds: it reads rows of users, each with some columns of the index beside them.

    Attributes:
      model: the model; None: the index cannot be searched.
    """

    model: RowModel | None = dataclasses.field(default=None, kw_only=True)

    reads_rows: ClassVar[bool] = True

    @abc.abstractmethod
    def first_columns(self, rows: int) -> dict[str, Any]:
        """Return the columns that the index gives to the model at first, for a number of rows."""

    @abc.abstractmethod
    def most_pairs(self, k: int) -> int:
        """Return how many rows the model reads for a row of users, about."""

    @property
    def user_columns(self) -> list[str]:
        given = self.first_columns(0)
        return [name for name in self._model.columns if name not in given]

    def first_rows(self, users: Any) -> Any:
        """Return the rows that the model reads first: where it refuses none of them, it refuses none of the search."""
        count = rows_in(users)
        return paired(users, np.arange(count), self._model.columns, self.first_columns(count))

    @property
    def _model(self) -> RowModel:
        if self.model is None:
            raise ValueError("the index has no model to search with; make it by item_index of a run, or load an export")
        return self.model
