"""`CodeIndex`: items by their semantic ids, found by a beam search that takes codes of items alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.kernels.search import Excluded
from sparrow.retrieval.filters import Where
from sparrow.retrieval.index import Found, ItemIndex

Decode = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int64]], npt.NDArray[np.float32]]
"""From queries (n, dim) and the codes before (n, layer) to logarithms of the next codes' probabilities (n, codes)."""


@dataclasses.dataclass(frozen=True)
class CodeIndex(ItemIndex):
    """Items and their codes; ``vectors`` are the codes, (items, layers).

    >>> index = CodeIndex(pa.array(["a", "b", "c"]), np.array([[0, 0], [1, 0], [1, 1]]))
    >>> index.columns(pa.array([["a", "c"], []]), "seen")["seen_2"].to_pylist()
    [[0, 1], []]
    >>> even = dataclasses.replace(index, decode=lambda queries, known: np.log(np.array([[0.4, 0.6]] * len(queries))))
    >>> even.search(np.zeros((1, 4)), 2).table().to_pydict()["item"]  # 0.6 * 0.6, then 0.6 * 0.4
    ['c', 'b']

    Attributes:
      decode: the model; None: the index is there for `columns` alone.
      beam: the most beginnings of codes that are followed for each query.
    """

    decode: Decode | None = None
    beam: int = 50

    @classmethod
    def of(cls, table: Any, item: str = "item", codes: str = "codes", **options: Any) -> CodeIndex:
        """Return the index of a table of items with a column of lists of codes, as ``sparrow predict`` writes it."""
        held = table[codes].combine_chunks()
        lists = np.asarray(held.flatten().to_numpy(zero_copy_only=False)).reshape(len(held), -1)
        ids = table[item]
        ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        return cls(ids, lists, item=item, **options)

    def columns(self, ids: Any, name: str) -> dict[str, Any]:
        """Return the codes of a column of items, or of lists of them, by layer: ``name_1``, ``name_2``, ...

        An item without codes has none: a missing value, or no element of the list.
        """
        column = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        if not pa.types.is_list(column.type):
            places = self.rows(column)
            codes = self.vectors[np.maximum(places, 0)]
            return {
                f"{name}_{layer + 1}": pa.array(codes[:, layer], mask=places < 0) for layer in range(codes.shape[1])
            }
        places = self.rows(column.flatten())
        ends = np.concatenate([[0], np.cumsum(places >= 0)])[np.asarray(column.offsets) - column.offsets[0].as_py()]
        offsets, codes = pa.array(ends.astype(np.int32)), self.vectors[places[places >= 0]]
        return {
            f"{name}_{layer + 1}": pa.ListArray.from_arrays(offsets, pa.array(codes[:, layer]))
            for layer in range(codes.shape[1])
        }

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
        """Return the ``k`` items of the most probable codes that a beam finds; items of the same codes are equal.

        Args:
          queries: (queries, dim) states of users.
          k: items for each query.
          exclude: for each query, the ids that it must not find.
          allow: ids that may be found; None: all. The codes of others are not followed.
          where: conditions on the items' attributes, in the same way.
          exact: whether all codes are followed, whatever ``beam`` is.
        """
        fields.integer("recommend: k", k)
        if self.decode is None:
            raise ValueError("the index has no model to search with; make it by item_index of a run")
        wanted, count = np.ascontiguousarray(queries, np.float32), len(queries)
        allowed = self._allowed(allow, where)
        items = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        excluded = None if exclude is None else self._excluded(exclude, count)
        longest = 0 if excluded is None else int(np.diff(excluded.offsets).max(initial=0))
        width = len(items) if exact else max(self.beam, k) + longest
        codes = self.vectors[items]
        order = np.lexsort(codes.T[::-1])
        items, codes = items[order], codes[order]  # items of one beginning lie side by side
        owners, scores = np.arange(count), np.zeros(count)
        begins, ends = np.zeros(count, np.int64), np.full(count, len(items))  # the items of each beginning
        for layer in range(codes.shape[1]):
            known = codes[np.minimum(begins, len(items) - 1), :layer].astype(np.int64)
            chances = self.decode(wanted[owners], known)
            new = np.ones(len(items) + 1, np.bool_)
            new[1:-1] = (codes[1:, : layer + 1] != codes[:-1, : layer + 1]).any(axis=1)
            first = np.flatnonzero(new)  # where each longer beginning starts
            low, high = np.searchsorted(first, begins), np.searchsorted(first, ends)
            parents = np.repeat(np.arange(len(begins)), high - low)
            children = (
                np.arange(len(parents)) - np.repeat(np.cumsum(high - low) - (high - low), high - low) + low[parents]
            )
            scores = scores[parents] + chances[parents, codes[first[children], layer]]
            owners, begins, ends = owners[parents], first[children], first[children + 1]
            best = np.lexsort((begins, -scores, owners))
            rank = np.arange(len(best)) - np.searchsorted(owners[best], owners[best])
            kept = best[rank < width]
            owners, scores, begins, ends = owners[kept], scores[kept], begins[kept], ends[kept]
        return self._found(items, (owners, scores, begins, ends), (count, k), excluded)

    def _found(self, items: Any, beams: tuple[Any, ...], shape: tuple[int, int], excluded: Excluded | None) -> Found:
        """Return the items of the codes found, without those that are excluded."""
        made = np.full(shape, -1, np.int64)
        values = np.full(made.shape, -np.inf, np.float32)
        filled = np.zeros(len(made), np.int64)
        for owner, score, begin, end in zip(*beams, strict=True):  # the best first, by query
            found = items[begin:end]
            if excluded is not None:
                found = found[~np.isin(found, excluded.rows[excluded.offsets[owner] : excluded.offsets[owner + 1]])]
            place = filled[owner]
            taken = np.sort(found)[: shape[1] - place]
            made[owner, place : place + len(taken)], values[owner, place : place + len(taken)] = taken, score
            filled[owner] += len(taken)
        return Found(made, values, self.ids, self.item)
