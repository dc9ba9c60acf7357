"""`NegativeSampler`: items that are drawn for a batch, to train models that find the chosen item."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.data.batch import Batch
from sparrow.data.errors import DataError
from sparrow.data.features import Feature
from sparrow.data.samplers.base import ID, Sampler, drawn_bits
from sparrow.data.samplers.items import Edges, EdgeTable, Items
from sparrow.data.sources.base import BadRows, Source

_HARD = 1
"""The stream of random bits that chooses among a user's hard negatives."""


class NegativeSampler(Sampler):
    """Draws of items with replacement: uniformly, or in proportion to their weights.

    The examples of a batch share them. An item that an example chose is excluded from its negatives, and so are all
    items of its user in ``positives``. With ``hard``, an example has up to ``hard_count`` items of its user besides,
    which are its alone.

    >>> from sparrow.data import IdFeature, Tables
    >>> items = Tables({"item": [3, 5, 8], "count": [0.0, 1.0, 0.0]})
    >>> features = [IdFeature("item", num_buckets=10, embedding_dim=4)]
    >>> sampler = NegativeSampler(items, features, id_column="item", weight_column="count", count=4)
    >>> sampler.draw(batch=0).ids["item"].tolist()
    [5, 5, 5, 5]
    """

    def __init__(
        self,
        items: Source,
        features: Sequence[Feature],
        *,
        id_column: str,
        count: int | None,
        weight_column: str | None = None,
        chosen_key: str | None = None,
        user_key: str | None = None,
        positives: EdgeTable | None = None,
        hard: EdgeTable | None = None,
        hard_count: int = 0,
        seed: int = 0,
        like: Mapping[str, Any] | None = None,
        user_kind: Any = None,
        bad_rows: BadRows = "error",
    ) -> None:
        """Read all items.

        Args:
          items: a row per item, with the columns that the features need.
          features: the features that describe an item.
          id_column: the column that identifies an item.
          count: the number of items to draw for a batch; None: every batch has all items, each once.
          weight_column: the column of weights; items are drawn in proportion to them; None: uniformly.
          chosen_key: the key of the examples that holds the item chosen; needed with ``positives`` or ``hard``.
          user_key: the key of the examples that holds the user; needed with ``positives`` or ``hard``.
          positives: items that are no negatives of a user.
          hard: items that are hard negatives of a user.
          hard_count: the most of them for an example.
          seed: the seed of the draws.
          like: the Arrow types of the same columns in the examples. Where one side holds strings and the other numbers,
            the items are read as the examples are, because 17 and "17" have different hashes.
          user_kind: the Arrow type of the user's column in the examples.
          bad_rows: the policy for malformed items: "error", or "skip" to leave them out.
        """
        if count is not None:
            fields.integer("count", count)
        elif weight_column is not None:
            raise ValueError("all items of the catalog are negatives, and none is drawn; remove weight_column")
        self.count, self.seed = count, seed
        self._items = Items(
            items, features, id_column=id_column, weight_column=weight_column, like=like, bad_rows=bad_rows
        )
        self.fingerprint = f"{self._items.fingerprint}/{count}/{weight_column}"
        item_kind = (like or {}).get(id_column)

        def read(table: EdgeTable | None) -> Edges | None:
            if table is None:
                return None
            return Edges(table, {table.user_column: user_kind, table.item_column: item_kind}, bad_rows)

        self._positives, self._hard = read(positives), read(hard)
        self._hard_count = 0
        self._chosen_key = chosen_key or ""
        if positives is None and hard is None:
            return
        if user_key is None or chosen_key is None:
            raise ValueError("positives and hard negatives need the keys of the user and of the item chosen")
        self._user_key = user_key
        for edges in (self._positives, self._hard):
            self.fingerprint += "" if edges is None else f"/{edges.fingerprint}"
        if self._hard is not None:
            fields.integer("hard_count", hard_count)
            self._hard_count = hard_count
            self.fingerprint += f"/{hard_count}"
            self._refuse_unknown(self._hard, bad_rows)

    def draw(self, batch: int) -> Batch:
        """Return the negatives that the examples of the batch of this number share."""
        return self._items.rows.take(self._shared(batch))

    def _shared(self, number: int) -> npt.NDArray[np.int64]:
        if self.count is None:
            return np.arange(len(self._items.rows))
        return self._items.choice(drawn_bits(self.seed, number, self.count))

    def add(self, batch: Batch, number: int) -> Batch:
        """Return the batch with its negatives: the shared ones, then ``hard_count`` of each example."""
        shared = self._shared(number)
        log_q = self._log_q(batch, shared)
        if self._positives is None and self._hard is None:
            return dataclasses.replace(batch, negatives=self._items.rows.take(shared), log_q=log_q)
        keys = self._items.rows.keys[ID][shared]
        takes_part = keys[None, :] != batch.keys[self._chosen_key][:, None]
        if self._positives is not None:
            takes_part &= ~self._of_users(self._positives, batch, keys)
        if self._hard is not None:
            own, is_there = self._hard_of(self._hard, batch, number)
            takes_part = np.concatenate([takes_part, is_there], axis=1)
            shared = np.concatenate([shared, own.reshape(-1)])
            if log_q is not None:  # these are there in any case, as if expected once
                log_q = np.concatenate([log_q, np.zeros(own.size, np.float32)])
        return dataclasses.replace(batch, negatives=self._items.rows.take(shared), takes_part=takes_part, log_q=log_q)

    def _log_q(self, batch: Batch, drawn: npt.NDArray[np.int64]) -> npt.NDArray[np.float32] | None:
        """Return the logarithm of how often each chosen and each drawn item is expected; None without a chosen one."""
        if self._chosen_key not in batch.keys:
            return None
        if self.count is None:
            return np.zeros(len(batch) + len(drawn), np.float32)
        rows = np.concatenate([self._items.find(batch.keys[self._chosen_key]), drawn])
        return self._items.choice.log_expected(rows, self.count)

    def _of_users(self, edges: Edges, batch: Batch, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return which of the drawn items are among the items of each example's user, (examples, items)."""
        distinct, place_of = np.unique(keys, return_inverse=True)
        found = edges.of(batch.keys[self._user_key])
        place = np.minimum(np.searchsorted(distinct, found.items), len(distinct) - 1)
        is_drawn = distinct[place] == found.items
        mask = np.zeros((len(batch), len(distinct)), np.bool_)
        mask[found.rows[is_drawn], place[is_drawn]] = True
        return mask[:, place_of]

    def _hard_of(self, edges: Edges, batch: Batch, number: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Return rows of items, (examples, hard_count), and which of them are there.

        A user with more than ``hard_count`` of them gets a random choice.
        """
        count, most = len(batch), self._hard_count
        found = edges.of(batch.keys[self._user_key])
        rows = self._items.find(found.items)
        keep = (rows >= 0) & (found.items != batch.keys[self._chosen_key][found.rows])
        at, rows = found.rows[keep], rows[keep]
        order = np.lexsort((drawn_bits(self.seed, number, len(at), stream=_HARD), at))
        at, rows = at[order], rows[order]
        place = np.arange(len(at)) - np.searchsorted(at, at)  # among those of the same example
        within = place < most
        own, is_there = np.zeros((count, most), np.int64), np.zeros((count, most), np.bool_)
        own[at[within], place[within]] = rows[within]
        is_there[at[within], place[within]] = True
        return own, is_there

    def _refuse_unknown(self, edges: Edges, bad_rows: BadRows) -> None:
        unknown = self._items.find(edges.items) < 0
        if unknown.any() and bad_rows == "error":
            raise DataError(
                f"{int(unknown.sum())} of {len(unknown)} pairs name an item that is not among the items; remove them, "
                "or set bad_rows to 'skip'",
                edges.where,
            )
