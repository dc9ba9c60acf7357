"""`write`: the files of a config, and the config that reads them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import config as configs
from sparrow.config import Config, need
from sparrow.data import AUTO, Parquet, Split
from sparrow.samples import items
from sparrow.samples.columns import TOKENS, Columns, columns
from sparrow.samples.drawn import Drawn

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
    of_items = items.table(config, seed)
    nodes, edges, leaves = items.tree(config, seed)
    made: Columns = {}
    for number, (name, count) in enumerate((("train", rows), ("evaluate", max(rows // 4, 1)))):
        drawn = Drawn.of(count, seed + 1 + number)
        own = columns(config, drawn)
        if of_items:
            own = items.join(own, of_items, drawn)
        if data.tree is not None:
            own[data.tree.id_column] = [leaves[i] for i in drawn.below(data.tree.id_column, len(leaves))]
        changed[name] = _stored(folder, name, own)
        made = made or own
    if data.negatives is not None:
        changed["negatives"] = _negatives(config, folder, of_items, made, seed)
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


def _negatives(config: Config, folder: Path, of_items: Columns, rows: Columns, seed: int) -> Any:
    given = need(config.data, "data").negatives
    if given is None:
        return None
    source = _stored(folder, "items", items.stored_items(config, of_items))
    changed: dict[str, Any] = {"items": _inside(given.items, source)}
    for number, name in enumerate(("positives", "hard")):
        of_users = getattr(given, name)
        if of_users is not None and given.user_column is not None:
            names = of_users.user_column, of_users.item_column
            made = items.pairs(rows[given.user_column], of_items[given.id_column], names, seed + number)
            changed[name] = of_users.model_copy(update={"source": _stored(folder, name, made)})
    return given.model_copy(update=changed)


def _inside(source: Any, stored: Parquet) -> Any:
    """Return the stored table; inside of a source that splits a column, where the config has one."""
    return Split(stored, source.column, source.separator, source.into) if isinstance(source, Split) else stored


def _stored(folder: Path, name: str, made: Columns) -> Parquet:
    path = folder / f"{name}.parquet"
    arrays = {column: np.asarray(values) if _is_plain(values) else values for column, values in made.items()}
    pq.write_table(pa.table(arrays), path)
    return Parquet(str(path))


def _is_plain(values: list[Any]) -> bool:
    return not isinstance(values[0], list)
