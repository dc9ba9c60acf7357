"""`ItemIndex`: items by id, their vectors and attributes, and the best of them for each query."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.kernels.search import Excluded, best_rows
from sparrow.retrieval.approximate import Approximate
from sparrow.retrieval.filters import Where, passing

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

ROW: Final = "row"
"""The column of a row's number, where no column of users is known."""


CANDIDATES: Final = 100
"""Items of each user that a second model orders, unless told otherwise."""


class Found(NamedTuple):
    """The best items of each query, the best first.

    Attributes:
      rows: (queries, k) places in the index; -1: fewer items than k may be found.
      scores: (queries, k) dot products; -inf where there is none.
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


@dataclasses.dataclass(frozen=True)
class ItemIndex:
    """Items and their vectors.

    >>> index = ItemIndex(pa.array(["a", "b", "c"]), np.array([[1, 0], [0, 1], [1, 1]], np.float32))
    >>> index.search([[2.0, 1.0]], 2, exclude=[["c"]]).table().to_pydict()
    {'item': ['a', 'b'], 'score': [2.0, 1.0], 'rank': [1, 2]}

    Attributes:
      ids: the ids, each once, as the catalogue has them.
      vectors: (items, dim).
      attributes: columns to filter by; None: there are none.
      approximate: a FAISS index of the same vectors; None: search is exact.
      item: the column of items' ids in the data.
      user: the column of users' ids in the data; None: it is not known.
    """

    ids: Any
    vectors: Floats
    attributes: Any = None
    approximate: Approximate | None = None
    item: str = "item"
    user: str | None = None

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.vectors):
            raise ValueError(f"{len(self.ids)} ids were given for {len(self.vectors)} vectors; give one id per vector")
        if self.ids.null_count:
            raise ValueError(f"{self.ids.null_count} items have no id; leave them out of the catalogue")
        if len(pc.unique(self.ids)) < len(self.ids):
            counts = pc.value_counts(self.ids).to_pylist()
            again = next(entry["values"] for entry in counts if entry["counts"] > 1)
            raise ValueError(f"the item {again!r} is in the catalogue more than once; keep one row per item")
        if not np.isfinite(self.vectors).all():
            raise ValueError("some items have vectors with NaN or infinity; look at the training of the model")

    def __len__(self) -> int:
        return len(self.ids)

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
        """Return the ``k`` items with the largest dot products with each query.

        Args:
          queries: (queries, dim) vectors.
          k: items for each query.
          exclude: for each query, the ids that it must not find, such as items that a user has seen. Ids that are not
            in the index are ignored.
          allow: ids that may be found; None: all.
          where: conditions on the items' attributes.
          exact: whether to search exactly where the index has an approximate one.
        """
        fields.integer("recommend: k", k)
        wanted = np.ascontiguousarray(queries, np.float32)
        if wanted.ndim != 2 or wanted.shape[1] != self.vectors.shape[1]:
            raise ValueError(f"queries must be (queries, {self.vectors.shape[1]}), got {wanted.shape}")
        allowed = self._allowed(allow, where)
        excluded = None if exclude is None else self._excluded(exclude, len(wanted))
        if self.approximate is not None and not exact:
            scores, rows = self.approximate.search(wanted, k, allowed, excluded)
        else:
            scores, rows = best_rows(wanted, [self.vectors], k, allowed=allowed, excluded=excluded)
        return Found(rows, scores, self.ids, self.item)

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

    def _allowed(self, allow: Any, where: Where | None) -> npt.NDArray[np.bool_] | None:
        if allow is None and not where:
            return None
        mask = np.ones(len(self), np.bool_)
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
        if pa.types.is_null(lists.type) or pa.types.is_null(lists.type.value_type):
            return Excluded(np.zeros(queries + 1, np.int64), np.zeros(0, np.int64))
        owners = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
        places = self.rows(lists.flatten())
        owners, places = owners[places >= 0], places[places >= 0]
        order = np.lexsort((places, owners))
        offsets = np.searchsorted(owners[order], np.arange(queries + 1))
        return Excluded(offsets.astype(np.int64), places[order])
