"""`write`: the files of a config, and the config that reads them.

Beside the rows there may be items that negatives are drawn from, pairs of users and items, and trees of items.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import config as configs
from sparrow.config import Config, need
from sparrow.data import AUTO, Parquet, Split
from sparrow.samples.columns import KINDS, TOKENS, Columns, Drawn, columns

_ITEMS: Final = 64
_PAIRS: Final = 400
_WORDS: Final = 100
"""Words of a vocabulary whose file does not exist."""
_TOKENIZER: Final = {
    "version": "1.0",
    "added_tokens": [],
    "pre_tokenizer": {"type": "Whitespace"},
    "model": {
        "type": "WordLevel",
        "vocab": {word: place for place, word in enumerate(("?", *TOKENS, *TOKENS.upper()))},
        "unk_token": "?",
    },
}
"""A tokenizer whose file does not exist, as the library ``tokenizers`` writes it."""


def write(config: Config, folder: str | Path, rows: int, seed: int = 0) -> Config:
    """Write files that fit ``config`` to a folder, and ``config.yaml``, which reads them; return that config.

    The rows to evaluate on are a quarter of ``rows``, at least one. Labels follow a hidden kind of each row, which most
    values of its features show, so that a model that works learns to predict them.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    given = need(config.data, "data")
    features = tuple(_with_words(feature, folder) for feature in given.features)
    data = given.model_copy(update={"features": features})
    config = config.model_copy(update={"data": data})
    changed: dict[str, Any] = {"split": None} if data.split is not None else {}
    of_items = _items(config, seed)
    nodes, edges, leaves = _nodes(config, seed)
    made: Columns = {}
    for number, (name, count) in enumerate((("train", rows), ("evaluate", max(rows // 4, 1)))):
        drawn = Drawn.of(count, seed + 1 + number)
        own = columns(config, drawn)
        if of_items:
            own = _join(own, of_items, drawn)
        if data.tree is not None:
            own[data.tree.id_column] = [leaves[i] for i in drawn.below(data.tree.id_column, len(leaves))]
        changed[name] = _stored(folder, name, own)
        made = made or own
    if data.negatives is not None:
        changed["negatives"] = _negatives(data.negatives, folder, of_items, made, seed)
    if data.tree is not None:
        sources: dict[str, Any] = {"nodes": _inside(data.tree.nodes, _stored(folder, "nodes", nodes))}
        if data.tree.ancestors is not None:
            source = _stored(folder, "edges", edges)
            sources["ancestors"] = data.tree.ancestors.model_copy(update={"source": source})
        changed["tree"] = data.tree.model_copy(update=sources)
    result = config.model_copy(update={"data": data.model_copy(update=changed)})
    (folder / "config.yaml").write_text(configs.dumps(result), encoding="utf-8")
    return configs.load(folder / "config.yaml")


def _with_words(feature: Any, folder: Path) -> Any:
    """Return the feature; one whose file of words or tokens does not exist gets one of its own."""
    if (inner := getattr(feature, "element", None)) is not None and not hasattr(feature, "boundaries"):
        return dataclasses.replace(feature, element=_with_words(inner, folder))
    given = getattr(feature, "vocabulary", None)
    if not isinstance(given, str) or given == AUTO or Path(given).exists():
        return feature
    has_rows = getattr(feature, "vocabulary_has_rows", None)
    if has_rows is None:  # a file of tokens
        path, text = folder / f"{feature.name}.json", json.dumps(_TOKENIZER)
    else:
        lines = [f"w{i} {i}" if has_rows else f"w{i}" for i in range(_WORDS)]
        path, text = folder / f"{feature.name}.txt", "\n".join(lines) + "\n"
    path.write_text(text, encoding="utf-8")
    return dataclasses.replace(feature, vocabulary=str(path))


def _negatives(given: Any, folder: Path, of_items: Columns, rows: Columns, seed: int) -> Any:
    source = _stored(folder, "items", _stored_items(given, of_items))
    changed: dict[str, Any] = {"items": _inside(given.items, source)}
    for number, name in enumerate(("positives", "hard")):
        of_users = getattr(given, name)
        if of_users is not None and given.user_column is not None:
            names = of_users.user_column, of_users.item_column
            made = _pairs(rows[given.user_column], of_items[given.id_column], names, seed + number)
            changed[name] = dataclasses.replace(of_users, source=_stored(folder, name, made))
    return given.model_copy(update=changed)


def _inside(source: Any, stored: Parquet) -> Any:
    """Return the stored table; within a source that splits a column, where the config has one."""
    return Split(stored, source.column, source.separator, source.into) if isinstance(source, Split) else stored


def _stored(folder: Path, name: str, made: Columns) -> Parquet:
    path = folder / f"{name}.parquet"
    arrays = {column: values if isinstance(values[0], list) else np.asarray(values) for column, values in made.items()}
    pq.write_table(pa.table(arrays), path)
    return Parquet(str(path))


def _items(config: Config, seed: int) -> Columns:
    """Return the items of ``data.negatives``, numbered from 0, each of one kind; by the columns of the rows."""
    negatives = need(config.data, "data").negatives
    if negatives is None:
        return {}
    ids = _ids(config, negatives.id_column)
    made = columns(config, Drawn(np.arange(len(ids)) % KINDS, np.random.default_rng(seed)))
    model, features = need(config.model, "model"), need(config.data, "data").features
    groups = (negatives.group, getattr(model.architecture, "item_augment", negatives.group))
    members = {name for group in groups for name in model.groups.get(group, ())}
    names = [column for feature in features if feature.name in members for column in feature.columns]
    if isinstance(negatives.items, Split):
        names += negatives.items.into
    return {**{name: made[name] for name in names if name in made}, negatives.id_column: ids}


def _join(rows: Columns, items: Columns, drawn: Drawn) -> Columns:
    """Return the rows with an item each, one of the row's own kind."""
    count = len(next(iter(items.values())))
    chosen = (drawn.below("item of the row", max(count // KINDS, 1)) * KINDS + drawn.kinds) % count
    return {**rows, **{name: [values[i] for i in chosen] for name, values in items.items()}}


def _stored_items(negatives: Any, items: Columns) -> Columns:
    """Return the items as their source reads them: attributes joined in one column, or columns of their own."""
    source, ids = negatives.items, items[negatives.id_column]
    made = {source.column: _joined(items, source)} if isinstance(source, Split) else dict(items)
    made[negatives.items_id_column or negatives.id_column] = ids
    return made if negatives.weight_column is None else {**made, negatives.weight_column: [1.0] * len(ids)}


def _pairs(users: list[Any], items: list[Any], names: tuple[str, str], seed: int) -> Columns:
    """Return pairs of users and items."""
    rng = np.random.default_rng(seed)
    chosen = [(users[rng.integers(len(users))], items[rng.integers(len(items))]) for _ in range(_PAIRS)]
    return {names[0]: [user for user, _ in chosen], names[1]: [item for _, item in chosen], "weight": [1.0] * _PAIRS}


def _nodes(config: Config, seed: int) -> tuple[Columns, Columns, list[int]]:
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
    if given.level_column is not None:
        made[given.level_column] = levels
    nodes = {given.nodes.column: _joined(made, given.nodes)} if isinstance(given.nodes, Split) else made
    nodes[given.nodes_id_column or given.id_column] = list(range(count))
    if given.parent_column is not None:
        nodes[given.parent_column] = parents
    if given.weight_column is not None:
        nodes[given.weight_column] = [1.0] * count
    edges: Columns = {}
    if given.ancestors is not None:
        above = []
        for leaf in range(first, count):
            node = leaf
            while node:
                node = parents[node]
                above.append((leaf, node))
        leaves, ancestors = zip(*above, strict=True)
        edges = {given.ancestors.leaf_column: list(leaves), given.ancestors.ancestor_column: list(ancestors)}
        edges["weight"] = [1.0] * len(above)
    return nodes, edges, list(range(first, count))


def _joined(made: Columns, source: Split) -> list[Any]:
    rows = zip(*(made[name] for name in source.into), strict=True)
    return [source.separator.join(map(str, row)) for row in rows]


def _ids(config: Config, column: str) -> list[Any]:
    """Return the ids of items: numbers from 0 on, or words, that every feature of the ``column`` knows."""
    count = _ITEMS
    features: Sequence[Any] = need(config.data, "data").features
    for feature in features:
        if getattr(feature, "id_column", None) != column or getattr(feature, "compute", None) is not None:
            continue
        if feature.vocabulary not in (None, AUTO):
            return [str(word) for word in feature.words.words[:_ITEMS]]
        count = min(count, feature.num_rows)
    return list(range(count))
