"""A tree of items for TDM: built from vectors by balanced k-means, level by level, and searched by beam."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.errors import DataError
from sparrow.kernels.search import Excluded
from sparrow.retrieval.index import Floats, Mask, Numbers, RowIndex, paired, rows_in

PARENT: Final = "parent"
LEVEL: Final = "level"
ROUNDS: Final = 10
"""Rounds of k-means for one node."""
DEEPEST: Final = 64
"""The most levels of a tree."""
TOGETHER: Final = 256
"""Rows of users whose nodes are scored together."""


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
    centers = own[random.choice(len(own), count, replace=False)]
    for _ in range(ROUNDS):
        nearest = np.argmin(_distances(own, centers), axis=1)
        means = [own[nearest == c].mean(axis=0) if (nearest == c).any() else centers[c] for c in range(count)]
        moved = np.stack(means)
        if np.array_equal(moved, centers):
            break
        centers = moved
    centers = centers[np.argsort(-np.bincount(nearest, minlength=count), kind="stable")]  # larger parts come first
    distances, left, parts = _distances(own, centers), np.arange(len(own)), []
    for center in range(count - 1):  # each takes the items that would lose most elsewhere
        size = -(-len(left) // (count - center))
        gain = distances[left, center] - distances[left, center + 1 :].min(axis=1)
        chosen = np.sort(np.argsort(gain, kind="stable")[:size])
        parts.append(group[left[chosen]])
        left = np.delete(left, chosen)
    return [*parts, group[left]]


def _distances(rows: Floats, centers: Floats) -> Floats:
    """Return the squared distances to each center, less what all centers have in common."""
    made: Floats = (centers**2).sum(axis=1) - 2 * (rows @ centers.T)
    return made


@dataclasses.dataclass(frozen=True)
class TreeIndex(RowIndex):
    """The nodes of a tree, whose leaves are the items. The attributes are the nodes' columns, which its model reads.

    From the root on, the nodes with the best predictions of the model's first task are followed to their children.

    Attributes:
      parents: (nodes,) the place of each node's parent; the root is its own.
      width: nodes of each level that are followed, for each item that is wanted.
    """

    parents: Numbers
    width: int = 4

    @classmethod
    def of(cls, nodes: Any, item: str, parent: str, where: str, **options: Any) -> TreeIndex:
        """Return the tree of a table with the id of each node, and of its parent; the root is its own parent."""
        ids, above = (nodes[name].combine_chunks() for name in (item, parent))
        places = pc.index_in(above, value_set=ids)
        if places.null_count:
            raise DataError(f"{places.null_count} nodes have a parent that is no node", where)
        others = [name for name in nodes.column_names if name not in (item, parent)]
        chosen = nodes.select(others) if others else None
        try:
            return cls(ids, places.to_numpy().astype(np.int64), item=item, attributes=chosen, **options)
        except ValueError as error:
            raise DataError(str(error), where) from None

    def __post_init__(self) -> None:
        super().__post_init__()
        places = np.arange(len(self.ids))
        if (roots := int((self.parents == places).sum())) != 1:
            raise ValueError(f"a tree has one root, which is its own parent; found {roots}")
        above, depth = self.parents, 1
        while (above != self.root).any():
            above, depth = self.parents[above], depth + 1
            if depth > DEEPEST:
                raise ValueError(f"nodes are their own ancestors, or on more than {DEEPEST} levels")

    @functools.cached_property
    def root(self) -> int:
        return int(np.argmax(self.parents == np.arange(len(self.parents))))

    @functools.cached_property
    def is_leaf(self) -> Mask:
        """(nodes,) which nodes have no children."""
        made = np.ones(len(self.parents), np.bool_)
        made[self.parents] = False
        return made

    @functools.cached_property
    def _children(self) -> tuple[Numbers, Numbers]:
        """(nodes + 1,) where the children of each node begin, and the children of all nodes."""
        order = np.argsort(self.parents, kind="stable")
        children = order[order != self.root]
        counts = np.bincount(self.parents[children], minlength=len(self.parents))
        return np.concatenate([[0], np.cumsum(counts)]), children

    def __len__(self) -> int:
        return int(self.is_leaf.sum())

    def first_columns(self, rows: int) -> dict[str, Any]:
        return self._columns(np.full(rows, self.root))

    def most_pairs(self, k: int) -> int:
        """Return the nodes that are scored on all levels together, about."""
        counts = np.diff(self._children[0])
        branches, levels = int(counts.max()), 1
        while branches > 1 and branches**levels < len(self):
            levels += 1
        return min(self.width * k * branches * levels, len(self.ids))

    def _columns(self, places: Numbers) -> dict[str, Any]:
        taken = pa.array(places)
        return {name: column.take(taken) for name, column in self.catalog.items() if name in self._model.columns}

    def _best(
        self, queries: Any, k: int, allowed: Mask | None, excluded: Excluded | None, exact: bool
    ) -> tuple[Floats, Numbers]:
        longest = 0 if excluded is None else int(np.diff(excluded.offsets).max(initial=0))
        width = len(self.ids) if exact else self.width * k + longest
        count = rows_in(queries)
        parts = [
            self._beam(queries, np.arange(start, min(start + TOGETHER, count)), k, width, allowed, excluded)
            for start in range(0, count, TOGETHER)
        ]
        empty = np.zeros((0, k), np.float32), np.zeros((0, k), np.int64)
        scores, rows = (np.concatenate(part) for part in zip(empty, *parts, strict=True))
        return scores, rows

    def _beam(
        self, users: Any, rows: Numbers, k: int, width: int, allowed: Mask | None, excluded: Excluded | None
    ) -> tuple[Floats, Numbers]:
        """Return the scores and places of the best leaves for some rows of users."""
        (offsets, children), nodes = self._children, len(self.ids)
        left_out = np.zeros(0, np.int64)
        if excluded is not None:
            left_out = np.repeat(np.arange(len(excluded.offsets) - 1), np.diff(excluded.offsets)) * nodes
            left_out += excluded.rows
        held, scores = np.full((len(rows), 1), self.root), np.zeros((len(rows), 1), np.float32)
        while (inner := (held >= 0) & ~self.is_leaf[held]).any():
            owners, places = np.nonzero(inner)
            above = held[owners, places]
            counts = offsets[above + 1] - offsets[above]
            owners = np.repeat(owners, counts)
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            below = children[np.repeat(offsets[above], counts) + within]
            keep = np.ones(len(below), np.bool_) if allowed is None else allowed[below]
            keep &= ~np.isin(rows[owners] * nodes + below, left_out)
            keep |= ~self.is_leaf[below]
            owners, below = owners[keep], below[keep]
            pairs = paired(users, rows[owners], self._model.columns, self._columns(below))
            made = np.asarray(self._model.predict(pairs)[self._model.tasks[0]], np.float32)
            held, scores = _best(len(rows), owners, below, made, max(k, width))
        short = max(k - held.shape[1], 0)
        held = np.pad(held[:, :k], ((0, 0), (0, short)), constant_values=-1)
        scores = np.pad(scores[:, :k], ((0, 0), (0, short)), constant_values=-np.inf)
        return scores, np.where(np.isfinite(scores), held, -1)


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
