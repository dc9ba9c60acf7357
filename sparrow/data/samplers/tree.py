"""`TreeSampler`: nodes of a tree of items in place of the items, level by level, to train TDM; `TreeForm`: the tree."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.data.batch import Batch
from sparrow.data.errors import DataError
from sparrow.data.features import Feature
from sparrow.data.labels import Label
from sparrow.data.samplers.base import ID, Choice, Sampler, chances, drawn_bits
from sparrow.data.samplers.items import Edges, EdgeTable, Items
from sparrow.data.sources.base import BadRows, Source

Rows = npt.NDArray[np.int64]

DEEPEST: Final = 64
"""The most levels of a tree."""


@dataclasses.dataclass(frozen=True)
class Parents:
    """A tree whose nodes name their parents in a column of the table of nodes. The root is its own parent."""

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


TRIES: Final = 20
"""Draws of another node in place of one that was drawn already, before all nodes of the level are compared."""
_KEPT: Final = 2**40
"""The stream of random bits that chooses levels."""

Weighting = Literal["uniform", "arithmetic", "reciprocal"]


class TreeSampler(Sampler):
    """Turns each example into one for each level of the tree: the ancestor of its item, and other nodes of that level.

    The label of ancestors (and of the item itself, on the last level) becomes 1, that of the other nodes 0. Nodes of a
    level are drawn without replacement, uniformly or in proportion to their weights. The root takes no part.

    Reference: Zhu et al., Learning Tree-based Deep Model for Recommender Systems, KDD 2018, arXiv 1801.02294.
    """

    def __init__(
        self,
        nodes: Source,
        features: Sequence[Feature],
        *,
        id_column: str,
        form: Parents | Ancestors,
        counts: Sequence[int],
        chosen_key: str,
        labels: Sequence[str],
        weight_column: str | None = None,
        keep_ratio: float = 1.0,
        keep_weights: Weighting = "uniform",
        seed: int = 0,
        like: Mapping[str, Any] | None = None,
        bad_rows: BadRows = "error",
    ) -> None:
        """Read the tree.

        Args:
          nodes: a row per node, leaves included, with the columns that the features need.
          features: the features that describe a node; they take the place of the example's own.
          id_column: the column that identifies a node.
          form: how the table gives the tree.
          counts: nodes that are drawn besides the ancestor, for each level from the root's on, which has 0.
          chosen_key: the key of the examples that holds the item, a leaf.
          labels: the labels that are 1 for ancestors and 0 for others.
          weight_column: the column of weights; None: nodes are drawn uniformly.
          keep_ratio: the share of the levels between root and leaves that a batch keeps.
          keep_weights: how likely these are: equally, in proportion to 1, 2, 3, ... from the root on, or in proportion
            to the reciprocals of ..., 3, 2, 1.
          seed: the seed of the draws.
          like: the Arrow types of the same columns in the examples, as in `NegativeSampler`.
          bad_rows: the policy for malformed nodes.
        """
        parents = [form.column] if isinstance(form, Parents) else []
        levels = [] if isinstance(form, Parents) else [Label(form.level_column)]
        self._nodes = Items(
            nodes,
            features,
            id_column=id_column,
            weight_column=weight_column,
            labels=levels,
            more_keys=parents,
            like=like,
            bad_rows=bad_rows,
        )
        column = form.column if isinstance(form, Parents) else form.level_column
        options = (column, tuple(counts), weight_column, keep_ratio, keep_weights)
        self.fingerprint = "/".join(map(str, (self._nodes.fingerprint, *options)))
        if isinstance(form, Parents):
            self._tree = TreeForm.of_parents(self._nodes, self._nodes.more_keys[form.column])
        else:
            kind = (like or {}).get(id_column)
            edges = Edges(form.edges, {form.edges.user_column: kind, form.edges.item_column: kind}, bad_rows)
            self.fingerprint += f"/{edges.fingerprint}"
            levels_of = self._nodes.labels[form.level_column]
            self._tree = TreeForm.of_ancestors(self._nodes, levels_of, edges, len(counts))
        self._chosen_key, self._labels, self.seed = chosen_key, tuple(labels), seed
        self.counts = tuple(counts)
        self._check(keep_ratio, keep_weights)
        self._kept = round(keep_ratio * (len(self.counts) - 2))
        middle = np.arange(1.0, len(self.counts) - 1)
        made = {"uniform": np.ones_like(middle), "arithmetic": middle, "reciprocal": 1 / np.maximum(middle[::-1], 1)}
        self._level_weights = made[keep_weights]
        weights = self._nodes.choice.weights
        below = self._tree.levels[1:]  # the root is not drawn
        self._choices = [Choice(1), *(Choice(len(of), None if weights is None else weights[of]) for of in below)]
        self._place = np.zeros(len(self._nodes.rows), np.int64)  # of a node in its level
        for of_level in self._tree.levels:
            self._place[of_level] = np.arange(len(of_level))

    def _check(self, keep_ratio: float, keep_weights: str) -> None:
        levels = self._tree.levels
        if len(self.counts) != len(levels) or len(levels) < 2:
            raise DataError(f"the tree has {len(levels)} levels, and counts has {len(self.counts)}", self._nodes.where)
        if self.counts[0] != 0:
            raise ValueError(f"counts must begin with 0, for the root, got {self.counts[0]}")
        fields.number("keep_ratio", keep_ratio, at_least=0.0, at_most=1.0)
        fields.choice("keep_weights", keep_weights, ("uniform", "arithmetic", "reciprocal"))
        weights = self._nodes.choice.weights
        for level, (count, of_level) in enumerate(zip(self.counts, levels, strict=True)):
            fields.integer("counts", count, at_least=0)
            able = len(of_level) if weights is None else int((weights[of_level] > 0).sum())
            if level and count > able - 1:
                raise DataError(
                    f"level {level} has {able} nodes that can be drawn, and so at most {max(able - 1, 0)} besides the "
                    f"ancestor; counts has {count}",
                    self._nodes.where,
                )

    def add(self, batch: Batch, number: int) -> Batch:
        """Return the examples of all levels: those of the first example of ``batch``, then of the second, ..."""
        leaf = self._nodes.find(batch.keys[self._chosen_key])
        paths = self._tree.paths[leaf]
        lost = (leaf < 0) | (paths[:, -1] < 0)
        if lost.any():
            why = f"the item of {int(lost.sum())} examples of a batch is no leaf of the tree"
            raise DataError(f"{why}; add it, or remove these examples", self._nodes.where)
        parts, is_ancestor = [], []
        for level in self._levels(number):
            own = paths[:, level]
            drawn = self._tree.levels[level][self._drawn(level, self._place[own], number)]
            parts += [own[:, None], drawn]
            is_ancestor += [True] + [False] * self.counts[level]
        nodes = np.concatenate(parts, axis=1)  # (examples, nodes of each)
        repeated = batch.take(np.repeat(np.arange(len(batch)), nodes.shape[1]))
        described = self._nodes.rows.take(nodes.reshape(-1))
        labels = np.tile(np.array(is_ancestor, np.float32), len(batch))
        return dataclasses.replace(
            repeated,
            ids={**repeated.ids, **described.ids},
            numbers={**repeated.numbers, **described.numbers},
            sequences={**repeated.sequences, **described.sequences},
            labels={**repeated.labels, **{name: labels for name in self._labels if name in repeated.labels}},
        )

    def negative_rows(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """Return the rows of drawn nodes: those that are no ancestors of the chosen item."""
        labels: npt.NDArray[np.float32] = batch.labels[next(name for name in self._labels if name in batch.labels)]
        return np.asarray(labels == 0)

    def _levels(self, number: int) -> list[int]:
        """Return the levels that a batch keeps, the leaves' always."""
        last = len(self.counts) - 1
        race = -np.log1p(-chances(drawn_bits(self.seed, number, last - 1, stream=_KEPT))) / self._level_weights
        return [*sorted((np.argsort(race)[: self._kept] + 1).tolist()), last]

    def _drawn(self, level: int, own: npt.NDArray[np.int64], number: int) -> npt.NDArray[np.int64]:
        """Return distinct places of nodes in a level, (examples, count), other than ``own``."""
        choice, count = self._choices[level], self.counts[level]
        drawn = np.zeros((len(own), count), np.int64)
        bad = np.ones(drawn.shape, np.bool_)
        tries = TRIES if choice.size > 4 * count else 0  # of a small level the race is quicker
        for again in range(tries):
            drawn[bad] = choice(self._bits(level, number, again, *drawn.shape)[bad])
            bad = _repeated(drawn) | (drawn == own[:, None])
            if not bad.any():
                return drawn
        rows = np.flatnonzero(bad.any(axis=1))
        if count:
            drawn[rows] = self._race(level, own, number)[rows]
        return drawn

    def _race(self, level: int, own: npt.NDArray[np.int64], number: int) -> npt.NDArray[np.int64]:
        """Draw without replacement: the nodes whose exponential clocks, of the rates of their weights, ring first."""
        choice, count = self._choices[level], self.counts[level]
        clocks = -np.log1p(-chances(self._bits(level, number, TRIES, len(own), choice.size)))
        if choice.weights is not None:
            with np.errstate(divide="ignore", invalid="ignore"):
                clocks = np.where(choice.weights > 0, clocks / choice.weights, np.inf)
        clocks[np.arange(len(own)), own] = np.inf
        return np.argsort(clocks, axis=1, kind="stable")[:, :count]

    def _bits(self, level: int, number: int, again: int, *shape: int) -> Any:
        return drawn_bits(self.seed, number, *shape, stream=1 + level * (TRIES + 1) + again)


def _repeated(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which numbers stand earlier in their row too.

    >>> _repeated(np.array([[3, 1, 3], [2, 2, 2]])).tolist()
    [[False, False, True], [False, True, True]]
    """
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    again = np.zeros(rows.shape, np.bool_)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    made = np.zeros(rows.shape, np.bool_)
    np.put_along_axis(made, order, again, axis=1)
    return made
