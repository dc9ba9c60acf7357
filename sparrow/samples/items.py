"""Tables beside the rows: items that negatives are drawn from, pairs of users and items, trees of items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sparrow.config import Config, need
from sparrow.data import AUTO, Split
from sparrow.samples.columns import Columns, columns, read_by
from sparrow.samples.drawn import KINDS, Drawn

ITEMS: Final = 64
_PAIRS: Final = 400


def table(config: Config, seed: int) -> Columns:
    """Return the items of ``data.negatives``, numbered from 0, each of one kind; by the columns of the rows."""
    negatives = need(config.data, "data").negatives
    if negatives is None:
        return {}
    ids = _ids(config, negatives.id_column)
    made = columns(config, Drawn(np.arange(len(ids)) % KINDS, np.random.default_rng(seed)))
    features = {feature.name: feature for feature in need(config.data, "data").features}
    groups = [negatives.group, getattr(need(config.model, "model").architecture, "item_augment", negatives.group)]
    members = [
        name for group in groups for name in need(config.model, "model").groups.get(group, ()) if name in features
    ]
    names = read_by(features[name] for name in members)
    source = negatives.items
    if isinstance(source, Split):
        names += source.into
    kept = {name: made[name] for name in dict.fromkeys(names) if name in made}
    return {**kept, negatives.id_column: ids}


def join(rows: Columns, items: Columns, drawn: Drawn) -> Columns:
    """Return the rows with an item each, one of the row's own kind."""
    count = len(next(iter(items.values())))
    chosen = (drawn.below("item of the row", max(count // KINDS, 1)) * KINDS + drawn.kinds) % count
    return {**rows, **{name: [values[i] for i in chosen] for name, values in items.items()}}


def stored_items(config: Config, items: Columns) -> Columns:
    """Return the items as their source reads them: attributes joined in one column, or columns of their own."""
    negatives = need(config.data, "data").negatives
    if negatives is None:
        return {}
    identity = negatives.items_id_column or negatives.id_column
    made: Columns = dict(items)
    if isinstance(negatives.items, Split):
        made = {negatives.items.column: _joined(items, negatives.items)}
    made[identity] = items[negatives.id_column]
    if negatives.weight_column is not None:
        made[negatives.weight_column] = [1.0] * len(made[identity])
    return made


def pairs(users: list[Any], items: list[Any], names: tuple[str, str], seed: int) -> Columns:
    """Return pairs of users and items."""
    rng = np.random.default_rng(seed)
    chosen = [(users[rng.integers(len(users))], items[rng.integers(len(items))]) for _ in range(_PAIRS)]
    return {names[0]: [user for user, _ in chosen], names[1]: [item for _, item in chosen], "weight": [1.0] * _PAIRS}


def tree(config: Config, seed: int) -> tuple[Columns, Columns, list[int]]:
    """Return the nodes of a tree, the ancestors of its leaves, and the ids of the leaves."""
    given = need(config.data, "data").tree
    if given is None:
        return {}, {}, []
    # Each node has two below it, until a level is wide enough for its negatives; then one.
    widest = 1 << max(8, max(given.counts).bit_length() + 1)
    widths = [min(2**level, widest) for level in range(len(given.counts))]
    levels = [level for level, width in enumerate(widths) for _ in range(width)]
    begins = [sum(widths[:level]) for level in range(len(widths))]
    parents = [0] + [
        begins[levels[node] - 1] + (node - begins[levels[node]]) * widths[levels[node] - 1] // widths[levels[node]]
        for node in range(1, len(levels))
    ]
    count, first = len(levels), begins[-1]
    drawn = Drawn(np.arange(count) % KINDS, np.random.default_rng(seed))
    made = columns(config, drawn) | {given.id_column: list(range(count))}
    identity = given.nodes_id_column or given.id_column
    if given.level_column is not None:
        made[given.level_column] = levels
    nodes: Columns = {identity: list(range(count))}
    if isinstance(given.nodes, Split):
        nodes[given.nodes.column] = _joined(made, given.nodes)
    else:
        nodes = made | nodes
    if given.parent_column is not None:
        nodes[given.parent_column] = parents
    if given.weight_column is not None:
        nodes[given.weight_column] = [1.0] * count
    above = [(leaf, node) for leaf in range(first, count) for node in _ancestors(leaf, parents)]
    edges: Columns = {}
    if given.ancestors is not None:
        leaves, ancestors = zip(*above, strict=True)
        edges = {given.ancestors.leaf_column: list(leaves), given.ancestors.ancestor_column: list(ancestors)}
        edges["weight"] = [1.0] * len(above)
    return nodes, edges, list(range(first, count))


def _ancestors(node: int, parents: list[int]) -> list[int]:
    found = []
    while node:
        node = parents[node]
        found.append(node)
    return found


def _joined(made: Columns, source: Split) -> list[Any]:
    rows = zip(*(made[name] for name in source.into), strict=True)
    return [source.separator.join(map(str, row)) for row in rows]


def _ids(config: Config, column: str) -> list[Any]:
    """Return the ids of items: numbers from 0 on, or words, that every feature of the ``column`` knows."""
    count = ITEMS
    features: Sequence[Any] = need(config.data, "data").features
    for feature in features:
        if getattr(feature, "id_column", None) != column or getattr(feature, "compute", None) is not None:
            continue
        if feature.vocabulary not in (None, AUTO):
            return [str(word) for word in feature.words.words[:ITEMS]]
        count = min(count, feature.num_rows)
    return list(range(count))
