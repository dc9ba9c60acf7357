"""`CodeIndex`: items by their semantic ids, found by a beam search that takes codes of items alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from sparrow.kernels.search import Excluded
from sparrow.retrieval.index import Floats, Mask, Numbers, RowIndex, owners_of, paired, rows_in

Chances = Callable[[Numbers, Numbers], Floats]
"""From rows of users (n,) and the codes before (n, layer) to logarithms of the next codes' probabilities (n, codes)."""


@dataclasses.dataclass(frozen=True)
class CodeIndex(RowIndex):
    """Items and their codes, of which the most probable ones are found by beam; items of the same codes are equal.

    >>> index = CodeIndex(pa.array(["a", "b", "c"]), np.array([[0, 0], [1, 0], [1, 1]]))
    >>> index.columns(pa.array([["a", "c"], []]), "seen")["seen_2"].to_pylist()
    [[0, 1], []]
    >>> even = lambda users: lambda rows, known: np.log(np.array([[0.4, 0.6]] * len(rows)))
    >>> dataclasses.replace(index, decode=even).search([None], 2).table().to_pydict()["item"]  # 0.6 * 0.6, 0.6 * 0.4
    ['c', 'b']

    Attributes:
      codes: (items, layers).
      inputs: the columns of the codes before, all but the last, as the model reads them.
      beam: the most beginnings of codes that are followed for each query.
      decode: returns the chances of codes for rows of users; None: by the tasks of ``model``, one for each layer.
    """

    codes: Numbers
    inputs: Sequence[str] = ()
    beam: int = 50
    decode: Callable[[Any], Chances] | None = None

    @classmethod
    def of(cls, table: Any, item: str = "item", codes: str = "codes", **options: Any) -> CodeIndex:
        """Return the index of a table of items with a column of lists of codes, as ``sparrow predict`` writes it."""
        held = table[codes].combine_chunks()
        lists = np.asarray(held.flatten().to_numpy(zero_copy_only=False)).reshape(len(held), -1)
        ids = table[item]
        ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        return cls(ids, lists.astype(np.int64), item=item, **options)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.codes.ndim != 2 or len(self.codes) != len(self.ids) or self.codes.min(initial=0) < 0:
            raise ValueError(f"codes must be (items, layers) of at least 0, got {self.codes.shape}")

    def first_columns(self, rows: int) -> dict[str, Any]:
        return self._columns(np.zeros((rows, 0), np.int64))

    def most_pairs(self, k: int) -> int:
        """Return the beginnings of codes that are followed in all layers together."""
        return max(self.beam, k) * int(self.codes.shape[1])

    def _columns(self, known: Numbers) -> dict[str, Any]:
        """Return the columns of codes; a code is not read before the next one is decoded."""
        padded = np.pad(known, ((0, 0), (0, len(self.inputs) - min(known.shape[1], len(self.inputs)))))
        return {name: pa.array(padded[:, layer]) for layer, name in enumerate(self.inputs)}

    def _by_rows(self, users: Any) -> Chances:
        model = self._model

        def chances(rows: Numbers, known: Numbers) -> Floats:
            made = model.predict(paired(users, rows, model.columns, self._columns(known)))
            found: Floats = np.log(np.maximum(made[model.tasks[known.shape[1]]], np.finfo(np.float32).tiny))
            return found

        return chances

    def columns(self, ids: Any, name: str) -> dict[str, Any]:
        """Return the codes of a column of items, or of lists of them, by layer: ``name_1``, ``name_2``, ...

        An item without codes has none: a missing value, or no element of the list.
        """
        column = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        if not column.type.num_fields:
            places = self.rows(column)
            codes = self.codes[np.maximum(places, 0)]
            return {
                f"{name}_{layer + 1}": pa.array(codes[:, layer], mask=places < 0) for layer in range(codes.shape[1])
            }
        owners, places = owners_of(column), self.rows(column.flatten())
        ends = np.searchsorted(owners[places >= 0], np.arange(len(column) + 1))
        offsets, codes = pa.array(ends.astype(np.int32)), self.codes[places[places >= 0]]
        return {
            f"{name}_{layer + 1}": pa.ListArray.from_arrays(offsets, pa.array(codes[:, layer]))
            for layer in range(codes.shape[1])
        }

    def _best(
        self, queries: Any, k: int, allowed: Mask | None, excluded: Excluded | None, exact: bool
    ) -> tuple[Floats, Numbers]:
        count, chances_of = rows_in(queries), (self.decode or self._by_rows)(queries)
        items = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        longest = 0 if excluded is None else int(np.diff(excluded.offsets).max(initial=0))
        width = len(items) if exact else max(self.beam, k) + longest
        codes = self.codes[items]
        order = np.lexsort(codes.T[::-1])
        items, codes = items[order], codes[order]  # items of one beginning lie side by side
        owners, scores = np.arange(count if len(items) else 0), np.zeros(count if len(items) else 0)
        begins, ends = np.zeros_like(owners), np.full_like(owners, len(items))  # the items of each beginning
        for layer in range(codes.shape[1]):
            known = codes[begins, :layer]
            chances = chances_of(owners, known)
            if codes[:, layer].max(initial=0) >= chances.shape[1]:
                raise ValueError(f"some items have codes that layer {layer + 1} of the model does not know")
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

    def _found(
        self, items: Any, beams: tuple[Any, ...], shape: tuple[int, int], excluded: Excluded | None
    ) -> tuple[Floats, Numbers]:
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
        return values, made
