"""``dynamic`` on an entry of ``model.tables``: it is the vocabulary of every feature that reads one of its tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sparrow.errors import ConfigError, Problem

DYNAMIC: Final = "dynamic"
KINDS: Final = ("id", "sequence")
MAPPINGS: Final = ("num_buckets", "hash_bucket_size", "vocabulary", DYNAMIC)


def with_table_vocabularies(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a config's fields with the vocabularies of tables given to their features; other fields are not checked.

    >>> feature = {"kind": "id", "name": "user", "embedding_dim": 4}
    >>> made = with_table_vocabularies({"data": {"features": [feature]},
    ...                                 "model": {"tables": [{"tables": ["user"], "dynamic": {"rows": 9}}]}})
    >>> made["data"]["features"][0]["dynamic"], made["model"]["tables"]
    ({'rows': 9}, [])
    """
    model, data = fields.get("model"), fields.get("data")
    entries = _list(model, "tables")
    if not any(isinstance(entry, Mapping) and entry.get(DYNAMIC) is not None for entry in entries):
        return fields
    features = [dict(each) if isinstance(each, Mapping) else each for each in _list(data, "features")]
    left = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or entry.get(DYNAMIC) is None:
            left.append(entry)
            continue
        where = ("model", "tables", number, DYNAMIC)
        found = [each for each in features if isinstance(each, dict) and _reads(each, entry.get("tables", ()))]
        if not found:
            raise ConfigError([Problem(where, "no id or sequence feature reads one of these tables")])
        for each in found:
            if own := [field for field in MAPPINGS if each.get(field) is not None]:
                text = f"the feature '{each.get('name')}' of this table has {own[0]} of its own; remove one of them"
                raise ConfigError([Problem(where, text)])
            each[DYNAMIC] = entry[DYNAMIC]
        others = {field: value for field, value in entry.items() if field != DYNAMIC}
        if others.keys() != {"tables"}:
            left.append(others)
    assert isinstance(model, Mapping)
    assert isinstance(data, Mapping)
    return {**fields, "model": {**model, "tables": left}, "data": {**data, "features": features}}


def _list(section: Any, field: str) -> Sequence[Any]:
    given = section.get(field) if isinstance(section, Mapping) else None
    return given if isinstance(given, list | tuple) else ()


def _reads(feature: Mapping[str, Any], patterns: Any) -> bool:
    name = feature.get("table") or feature.get("name")
    if feature.get("kind") not in KINDS or not isinstance(name, str):
        return False
    given: Iterable[Any] = [patterns] if isinstance(patterns, str) else patterns
    try:
        return any(isinstance(pattern, str) and re.fullmatch(pattern, name) for pattern in given)
    except (re.error, TypeError):  # reported where the entry is checked
        return False
