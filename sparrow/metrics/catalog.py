"""Ranks among all items of a catalog, and the metrics made of them: for models with two towers.

A rank among a few negatives predicts little of the rank among all items, and favors models that know popular ones.
So each chosen item is ranked here against the complete catalog, less the items that its user is known to have seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

ROWS: Final = 512
ITEMS: Final = 8192
"""The block of scores that is held at a time."""


def catalog_ranks(
    query: npt.ArrayLike | jax.Array,
    items: npt.ArrayLike | jax.Array,
    chosen: npt.ArrayLike,
    seen: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
) -> Ints:
    """Return the rank of each row's chosen item among all items, from 1 on, by the inner product with its query.

    Among equal scores the chosen item comes last, so that a model that scores all items alike gets the worst rank.

    Args:
      query: (rows, dim), floating point.
      items: (items, dim), the complete catalog.
      chosen: (rows,), the number of the chosen item in the catalog.
      seen: items that a row leaves out, as offsets (rows + 1,) and item numbers; the chosen item itself stays.

    >>> items = np.eye(3, dtype=np.float32)
    >>> query = np.array([[0.1, 0.5, 0.9], [0.1, 0.5, 0.9]], np.float32)
    >>> catalog_ranks(query, items, [0, 0]).tolist()
    [3, 3]
    >>> catalog_ranks(query, items, [0, 0], seen=([0, 1, 1], [2])).tolist()  # the first row has seen item 2
    [2, 3]
    """
    query, items = jnp.asarray(query, jnp.float32), jnp.asarray(items, jnp.float32)
    chosen = np.asarray(chosen, np.int64)
    if query.ndim != 2 or items.ndim != 2 or query.shape[1] != items.shape[1]:
        raise ValueError(f"query and items must be (rows, dim) and (items, dim), got {query.shape} and {items.shape}")
    if chosen.shape != query.shape[:1]:
        raise ValueError(f"chosen must have one number per row, {query.shape[0]}, got {chosen.shape}")
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < items.shape[0]:
        raise ValueError(f"chosen items must be below the {items.shape[0]} items of the catalog, got {chosen.max()}")
    ranks = np.ones(len(chosen), np.int64)
    pairs = _Pairs(seen, len(chosen), items.shape[0])
    items = jnp.pad(items, ((0, -items.shape[0] % ITEMS), (0, 0)))
    for first in range(0, len(chosen), ROWS):
        rows = slice(first, min(first + ROWS, len(chosen)))
        block = jnp.pad(query[rows], ((0, ROWS - (rows.stop - first)), (0, 0)))
        own = jnp.asarray(np.pad(chosen[rows], (0, ROWS - (rows.stop - first))).astype(np.int32))
        score = _own_scores(block, items, own)
        above = np.zeros(ROWS, np.int64)
        for start in range(0, items.shape[0], ITEMS):
            hidden = pairs.within(rows, start)
            above += np.asarray(_above(block, items, own, score, start, pairs.count, hidden))
        ranks[rows] += above[: rows.stop - first]
    return ranks


class _Pairs:
    """Rows and the items that they leave out, by blocks."""

    def __init__(self, seen: tuple[npt.ArrayLike, npt.ArrayLike] | None, rows: int, items: int) -> None:
        offsets, numbers = (np.zeros(rows + 1), np.zeros(0)) if seen is None else seen
        offsets, numbers = np.asarray(offsets, np.int64), np.asarray(numbers, np.int64)
        if offsets.shape != (rows + 1,) or offsets[-1] != len(numbers) or np.any(np.diff(offsets) < 0):
            raise ValueError(f"seen must be offsets of {rows + 1} and as many items as the last of them")
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < items:
            raise ValueError(f"seen items must be below the {items} items of the catalog, got {numbers.max()}")
        self._offsets, self._numbers, self.count = offsets, numbers, items

    def within(self, rows: slice, start: int) -> tuple[jax.Array, jax.Array]:
        """Return the places in one block of scores, padded to a power of two with places outside of it."""
        numbers = self._numbers[self._offsets[rows.start] : self._offsets[rows.stop]]
        owner = np.repeat(np.arange(rows.stop - rows.start), np.diff(self._offsets[rows.start : rows.stop + 1]))
        inside = (numbers >= start) & (numbers < start + ITEMS)
        row, column = owner[inside], numbers[inside] - start
        padding = (1 << max(len(row) - 1, 0).bit_length()) - len(row)
        row = np.pad(row, (0, padding), constant_values=ROWS).astype(np.int32)
        return jnp.asarray(row), jnp.asarray(np.pad(column, (0, padding)).astype(np.int32))


@jax.jit
def _own_scores(query: jax.Array, items: jax.Array, own: jax.Array) -> jax.Array:
    return jnp.einsum("rd,rd->r", query, items[own], precision="highest")


@jax.jit
def _above(
    query: jax.Array,
    items: jax.Array,
    own: jax.Array,
    score: jax.Array,
    start: jax.Array,
    count: jax.Array,
    hidden: tuple[jax.Array, jax.Array],
) -> jax.Array:
    """Return how many items of one block come before each row's own."""
    block = jax.lax.dynamic_slice_in_dim(items, start, ITEMS)
    before = jnp.einsum("rd,id->ri", query, block, precision="highest") >= score[:, None]
    number = start + jnp.arange(ITEMS)
    before &= (number < count) & (number != own[:, None])
    return before.at[hidden].set(False, mode="drop").sum(axis=1)


def catalog_metrics(ranks: npt.ArrayLike, users: npt.ArrayLike, top_k: Sequence[int] = (10, 20)) -> dict[str, float]:
    """Return the means over users of Recall@K, HR@K, NDCG@K and MRR, from the ranks of all that each user chose.

    With the ranks r of a user's n chosen items::

        recall@K = |r <= K| / n           hr@K = 1 where some r <= K         mrr = 1 / min(r)
        ndcg@K   = Σ 1 / log2(1 + r), r <= K, over the same sum for the ranks 1 ... min(n, K)

    An item that was chosen twice, or rows with queries of their own, may share a rank with another row of their user.
    For NDCG the i-th best of a user counts as rank i at least, as in one list, so that 1 is the most.

    >>> found = catalog_metrics([1, 30, 2], ["ann", "ann", "bob"], top_k=[10])
    >>> {name: round(value, 3) for name, value in found.items()}
    {'recall@10': 0.75, 'hr@10': 1.0, 'ndcg@10': 0.622, 'mrr': 0.75}
    """
    ranks = np.asarray(ranks, np.int64)
    _, number = np.unique(np.asarray(users), return_inverse=True)
    chosen = np.bincount(number)
    if not len(ranks):
        return {}
    found: dict[str, float] = {}
    order = np.lexsort((ranks, number))
    place = np.arange(1, len(ranks) + 1) - np.concatenate([[0], np.cumsum(chosen)])[number[order]]
    listed, owner = np.maximum(ranks[order], place), number[order]
    gain = 1 / np.log2(1 + listed)
    ideal = np.concatenate([[0.0], np.cumsum(1 / np.log2(2.0 + np.arange(max(top_k))))])
    for k in top_k:
        hits = np.bincount(number, ranks <= k)
        found[f"recall@{k}"] = float(np.mean(hits / chosen))
        found[f"hr@{k}"] = float(np.mean(hits > 0))
        found[f"ndcg@{k}"] = float(np.mean(np.bincount(owner, gain * (listed <= k)) / ideal[np.minimum(chosen, k)]))
    best = np.full(len(chosen), np.iinfo(np.int64).max)
    np.minimum.at(best, number, ranks)
    return {**found, "mrr": float(np.mean(1 / best))}


def seen_by(users: Any, items: Any, rows: Any) -> tuple[Ints, Ints]:
    """Return the items that the user of each row has seen, as `catalog_ranks` takes them.

    Args:
      users: who saw something, one entry per event.
      items: the number of the item seen.
      rows: the user of each row that is to be ranked.

    >>> offsets, numbers = seen_by(["ann", "bob", "ann"], [5, 6, 7], ["bob", "ann", "carol"])
    >>> offsets.tolist(), numbers.tolist()
    ([0, 1, 3, 3], [6, 5, 7])
    """
    users, items, rows = np.asarray(users), np.asarray(items, np.int64), np.asarray(rows)
    order = np.argsort(users, kind="stable")
    users, items = users[order], items[order]
    starts, ends = np.searchsorted(users, rows, "left"), np.searchsorted(users, rows, "right")
    counts = ends - starts
    offsets = np.concatenate([[0], np.cumsum(counts)])
    at = np.arange(offsets[-1]) - np.repeat(offsets[:-1] - starts, counts)
    return offsets, items[at]
