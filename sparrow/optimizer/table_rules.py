"""Rules for tables by pattern, instead of their own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from sparrow.dense import assign
from sparrow.embedding import FeatureSpec, TableSpec
from sparrow.rules import Rule


def with_rules(features: Sequence[FeatureSpec], rules: Mapping[str, Rule]) -> list[FeatureSpec]:
    """Return the features with the rule of every table whose whole name a pattern matches replaced.

    The other tables keep their rule. A pattern that matches no table, and a table that two patterns match, are errors
    that list the tables. A rule with the learning rate 0 freezes a table.

    >>> from sparrow.rules import SGD, Adam
    >>> features = [
    ...     FeatureSpec(name=n, table_spec=TableSpec(name=n, vocabulary_size=4, embedding_dim=2, optimizer=SGD(0.1)))
    ...     for n in ("user_id", "item_id", "item_shop")
    ... ]
    >>> [f.table_spec.optimizer.name for f in with_rules(features, {r"item_.*": Adam(0.01)})]
    ['SGD', 'Adam', 'Adam']
    """
    tables = {feature.table_spec.name: feature.table_spec for feature in features}
    chosen = list(rules.values())
    changed: dict[str, TableSpec] = {}
    for name, index in assign(list(rules), tables).items():
        changed[name] = tables[name] if index is None else dataclasses.replace(tables[name], optimizer=chosen[index])
    return [dataclasses.replace(feature, table_spec=changed[feature.table_spec.name]) for feature in features]
