"""A tree of items for TDM: built from vectors by balanced k-means, level by level, and searched by beam."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.errors import DataError

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

PARENT: Final = "parent"
LEVEL: Final = "level"
ROUNDS: Final = 10
"""Rounds of k-means for one node."""


def build_tree(
    ids: Any, vectors: Floats, *, item: str = "item", attributes: Any = None, branches: int = 2, seed: int = 0
) -> Any:
    """Return the nodes of a balanced tree whose leaves are the items, all on the last level, similar ones together.

    From the root on, the items of a node are divided by k-means into ``branches`` parts, whose sizes differ by one at
    most. A row per node: its id, ``parent`` (the root is its own), ``level`` (0 for the root), and the attributes: a
    node above the leaves has those of the item nearest to the mean of its items. Ids of these nodes are integers after
    the largest id of an item, or strings such as "node 5".

    >>> tree = build_tree(pa.array([10, 11, 12]), np.array([[0.0], [9.0], [0.1]], np.float32))
    >>> tree.to_pydict()  # 10 and 12 are together
    {'item': [13, 14, 15, 10, 12, 11], 'parent': [13, 13, 13, 14, 14, 15], 'level': [0, 1, 1, 2, 2, 2]}

    Reference: Zhu et al., 2018, arXiv 1801.02294, section 3.4.
    """
    fields.integer("tree: branches", branches, at_least=2)
    if len(ids) < 2 or len(ids) != len(vectors):
        raise ValueError(f"a tree needs two items or more, and a vector of each, got {len(ids)} and {len(vectors)}")
    random = np.random.default_rng(seed)
    depth = 1
    while branches**depth < len(ids):
        depth += 1
    groups, parents, levels, items = [np.arange(len(ids))], [0], [0], [_nearest(vectors, np.arange(len(ids)))]
    above = [0]  # the node of each group
    for level in range(1, depth + 1):
        divided, below = [], []
        for node, group in zip(above, groups, strict=True):
            for part in _parts(vectors, group, branches, random):
                divided.append(part)
                below.append(len(parents))
                parents.append(node)
                levels.append(level)
                items.append(_nearest(vectors, part))
        groups, above = divided, below
    names = _names(ids, len(parents) - len(ids), pa.array(items[-len(ids) :]))
    columns = {item: names, PARENT: names.take(pa.array(parents)), LEVEL: pa.array(levels, pa.int32())}
    if attributes is not None:
        columns |= {name: attributes[name].take(pa.array(items)) for name in attributes.column_names}
    return pa.table(columns)


def _names(ids: Any, inner: int, leaves: Any) -> Any:
    """Return the ids of all nodes: new ones for those above the leaves, then those of the leaves."""
    if pa.types.is_integer(ids.type):
        first = pc.max(ids).as_py() + 1
        made = pa.array(range(first, first + inner), pa.int64())
        return pa.concat_arrays([made, ids.cast(pa.int64()).take(leaves)])
    made = pa.array([f"node {number}" for number in range(inner)], pa.string())
    if pc.any(pc.is_in(made, value_set=ids.cast(pa.string()))).as_py():
        raise ValueError("some items are called 'node 0', 'node 1', ...; rename them")
    return pa.concat_arrays([made, ids.cast(pa.string()).take(leaves)])


def _nearest(vectors: Floats, group: Numbers) -> int:
    own = vectors[group]
    return int(group[np.argmin(((own - own.mean(axis=0)) ** 2).sum(axis=1))])


def _parts(vectors: Floats, group: Numbers, branches: int, random: np.random.Generator) -> list[Numbers]:
    """Return the items of a node in ``branches`` parts of equal size, give or take one; fewer where it has fewer."""
    count = min(branches, len(group))
    if count < 2 or len(group) == count:
        return [group[place : place + 1] for place in range(len(group))] if count > 1 else [group]
    own = vectors[group]
    centres = own[random.choice(len(own), count, replace=False)]
    for _ in range(ROUNDS):
        nearest = np.argmin(_distances(own, centres), axis=1)
        means = [own[nearest == c].mean(axis=0) if (nearest == c).any() else centres[c] for c in range(count)]
        moved = np.stack(means)
        if np.array_equal(moved, centres):
            break
        centres = moved
    centres = centres[np.argsort(-np.bincount(nearest, minlength=count), kind="stable")]  # larger parts come first
    distances, left, parts = _distances(own, centres), np.arange(len(own)), []
    for centre in range(count - 1):  # each takes the items that would lose most elsewhere
        size = -(-len(left) // (count - centre))
        gain = distances[left, centre] - distances[left, centre + 1 :].min(axis=1)
        chosen = np.sort(np.argsort(gain, kind="stable")[:size])
        parts.append(group[left[chosen]])
        left = np.delete(left, chosen)
    return [*parts, group[left]]


def _distances(rows: Floats, centres: Floats) -> Floats:
    """Return the squared distances to each centre, less what all centres have in common."""
    made: Floats = (centres**2).sum(axis=1) - 2 * (rows @ centres.T)
    return made


Score = Callable[[Numbers, Numbers], Floats]
"""``score(queries, nodes)``: the scores of pairs of a query and a node, both by place."""


@dataclasses.dataclass(frozen=True)
class ItemTree:
    """A tree of nodes by place.

    Attributes:
      offsets: (nodes + 1,) where the children of each node begin in ``children``.
      children: the children of all nodes.
      root: the root.
      is_leaf: (nodes,) which nodes have no children.
    """

    offsets: Numbers
    children: Numbers
    root: int
    is_leaf: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, ids: Any, parents: Any, where: str) -> ItemTree:
        """Return the tree of nodes and the ids of their parents; the root is its own parent."""
        parent = pc.index_in(parents, value_set=ids)
        if parent.null_count:
            raise DataError(f"{parent.null_count} nodes have a parent that is no node", where)
        above: Numbers = parent.to_numpy().astype(np.int64)
        roots = np.flatnonzero(above == np.arange(len(above)))
        if len(roots) != 1:
            raise DataError(f"a tree has one root, which is its own parent; found {len(roots)}", where)
        order = np.argsort(above, kind="stable")
        children = order[order != roots[0]]
        counts = np.bincount(above[children], minlength=len(above))
        return cls(np.concatenate([[0], np.cumsum(counts)]), children, int(roots[0]), counts == 0)

    def beam(
        self, queries: int, score: Score, k: int, width: int, allowed: npt.NDArray[np.bool_] | None = None
    ) -> tuple[Numbers, Floats]:
        """Return the best leaves of each query and their scores, (queries, k); -1 and -inf where there are fewer.

        From the root on, the ``width`` nodes with the best scores are followed to their children.

        Args:
          queries: their number.
          score: the scores of nodes.
          k: leaves of each query.
          width: nodes of each level that are followed.
          allowed: (queries, nodes) or (1, nodes) which leaves may be found; None: all.
        """
        held, scores = np.full((queries, 1), self.root), np.zeros((queries, 1), np.float32)
        while True:
            inner = (held >= 0) & ~self.is_leaf[held]
            if not inner.any():
                break
            owners, places = np.nonzero(inner)
            nodes = held[owners, places]
            counts = self.offsets[nodes + 1] - self.offsets[nodes]
            owners = np.repeat(owners, counts)
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            below = self.children[np.repeat(self.offsets[nodes], counts) + within]
            if allowed is not None:
                keep = ~self.is_leaf[below] | allowed[owners % len(allowed), below]
                owners, below = owners[keep], below[keep]
            held, scores = _best(queries, owners, below, score(owners, below), max(k, width))
        short = max(k - held.shape[1], 0)
        held = np.pad(held[:, :k], ((0, 0), (0, short)), constant_values=-1)
        scores = np.pad(scores[:, :k], ((0, 0), (0, short)), constant_values=-np.inf)
        return np.where(np.isfinite(scores), held, -1), scores


def _best(queries: int, owners: Numbers, nodes: Numbers, scores: Floats, most: int) -> tuple[Numbers, Floats]:
    """Return the best nodes of each query, the best first, as a table with -1 and -inf where it has fewer."""
    order = np.lexsort((nodes, -scores, owners))
    owners, nodes, scores = owners[order], nodes[order], scores[order]
    rank = np.arange(len(owners)) - np.searchsorted(owners, owners)
    kept = rank < most
    shape = queries, int(rank[kept].max(initial=0)) + 1
    held, values = np.full(shape, -1), np.full(shape, -np.inf, np.float32)
    held[owners[kept], rank[kept]], values[owners[kept], rank[kept]] = nodes[kept], scores[kept]
    return held, values
