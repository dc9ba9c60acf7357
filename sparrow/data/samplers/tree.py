"""`TreeForm`: the levels of a tree of items, and the path from its root to each leaf."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.data.errors import DataError
from sparrow.data.samplers.base import ID
from sparrow.data.samplers.edges import Edges, EdgeTable
from sparrow.data.samplers.items import Items

Rows = npt.NDArray[np.int64]

DEEPEST: Final = 64
"""The most levels of a tree."""


@dataclasses.dataclass(frozen=True)
class Parents:
    """A tree whose nodes name their parents. The root is its own parent.

    Attributes:
      column: the column of the parent's id in the table of nodes.
    """

    column: str


@dataclasses.dataclass(frozen=True)
class Ancestors:
    """A tree given by the level of each node, and by all ancestors of each leaf.

    Attributes:
      edges: pairs of a leaf (as the user) and an ancestor (as the item).
      level_column: the column of the level in the table of nodes; that of leaves is the largest. The root may be
        left out of the table.
    """

    edges: EdgeTable
    level_column: str


@dataclasses.dataclass(frozen=True)
class TreeForm:
    """A tree whose leaves are all on the last level. Nodes are rows of the table of nodes.

    Attributes:
      paths: (nodes, levels) the node of each level on the path to a leaf; -1 for nodes that are no leaves.
      levels: the nodes of each level, the root's first.
    """

    paths: Rows
    levels: tuple[Rows, ...]

    @classmethod
    def of_parents(cls, nodes: Items, parents: npt.NDArray[np.int64]) -> TreeForm:
        """Return the tree of nodes and the keys of their parents."""
        parent = nodes.find(parents).astype(np.int64)
        if (parent < 0).any():
            raise DataError(f"the parent of node {int(np.argmin(parent))}, counted from 0, is no node", nodes.where)
        count = len(parent)
        roots = np.flatnonzero(parent == np.arange(count))
        if len(roots) != 1:
            raise DataError(f"a tree has one root, which is its own parent; found {len(roots)}", nodes.where)
        above, depth = [np.arange(count)], np.zeros(count, np.int64)
        while (above[-1] != roots[0]).any():
            depth += above[-1] != roots[0]
            above.append(parent[above[-1]])
            if len(above) > DEEPEST:
                raise DataError(f"nodes are their own ancestors, or on more than {DEEPEST} levels", nodes.where)
        is_leaf = np.ones(count, np.bool_)
        is_leaf[parent] = False
        last = len(above) - 1
        if (depth[is_leaf] != last).any():
            odd = int(np.flatnonzero(is_leaf & (depth != last))[0])
            why = f"all leaves must be on the last level, {last}, and node {odd} is a leaf on level {depth[odd]}"
            raise DataError(f"{why}; give it a chain of children of its own", nodes.where)
        paths = np.where(is_leaf[:, None], np.stack(above[::-1], axis=1), -1)
        return cls(paths, tuple(np.flatnonzero(depth == level) for level in range(last + 1)))

    @classmethod
    def of_ancestors(cls, nodes: Items, levels: npt.NDArray[Any], edges: Edges, count: int) -> TreeForm:
        """Return the tree of ``count`` levels, of nodes with their levels, and the pairs of leaves and ancestors."""
        last = count - 1
        level = (levels - levels.max()).astype(np.int64) + last
        if (level < 0).any():
            raise DataError(
                f"the nodes are on {last - int(level.min()) + 1} levels, and counts has {count}", nodes.where
            )
        leaves = np.flatnonzero(level == last)
        found = edges.of(nodes.rows.keys[ID][leaves])
        ancestor = nodes.find(found.items).astype(np.int64)
        if (ancestor < 0).any():
            raise DataError("an ancestor is not among the nodes", edges.where)
        paths = np.full((len(level), last + 1), -1, np.int64)
        paths[leaves[found.rows], level[ancestor]] = ancestor
        paths[leaves, last] = leaves
        lacking = np.flatnonzero((paths[leaves, 1:] < 0).any(axis=1))
        if lacking.size:
            node, at = int(leaves[lacking[0]]), int(np.argmin(paths[leaves[lacking[0]], 1:])) + 1
            raise DataError(f"the leaf in row {node} has no ancestor on level {at}", edges.where)
        return cls(paths, tuple(np.flatnonzero(level == number) for number in range(last + 1)))
