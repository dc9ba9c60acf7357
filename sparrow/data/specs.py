"""From features to the specs of an `Embedder`: the tables, and the features that share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sparrow.data.features import Feature, TableUse
from sparrow.embedding import FeatureSpec, TableSpec
from sparrow.rules import Rule

T = TypeVar("T")


def feature_specs(
    features: Sequence[Feature],
    optimizer: Rule | Callable[[str], Rule],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[FeatureSpec]:
    """Return a `FeatureSpec` for every feature with a table; features that name the same table share it.

    >>> from sparrow.data import IdFeature, SequenceFeature
    >>> from sparrow.rules import RowwiseAdagrad
    >>> item = IdFeature("item", num_buckets=100, embedding_dim=8, table="items")
    >>> seen = SequenceFeature("seen", num_buckets=100, embedding_dim=8, table="items", max_length=20, pooling="mean")
    >>> [(spec.name, spec.table_spec.combiner) for spec in feature_specs([item, seen], RowwiseAdagrad(0.05))]
    [('item', 'mean'), ('seen', 'mean')]

    The combiner belongs to the feature. One that has none pools as the first feature of its table that has one.

    Args:
      features: ones without a table are left out.
      optimizer: the rule of all tables, or a function of the table's name.
      options: other fields of `TableSpec`, such as ``dtype``, by the table's name.
    """
    uses = {feature.name: feature.table_use for feature in features}
    return lookup_specs({name: use for name, use in uses.items() if use is not None}, optimizer, options)


def lookup_specs(
    uses: Mapping[str, TableUse],
    optimizer: Rule | Callable[[str], Rule],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[FeatureSpec]:
    """Return a `FeatureSpec` for every lookup, by name; the other arguments are as in `feature_specs`."""
    sharing: dict[str, dict[str, TableUse]] = {}
    for lookup, use in uses.items():
        sharing.setdefault(use.table, {})[lookup] = use
    tables = {
        name: TableSpec(
            name=name,
            vocabulary_size=_same(name, {lookup: use.num_rows for lookup, use in members.items()}, "num_rows"),
            embedding_dim=_same(name, {lookup: use.embedding_dim for lookup, use in members.items()}, "embedding_dim"),
            optimizer=optimizer if isinstance(optimizer, Rule) else optimizer(name),
            combiner=_combiner(members),  # type: ignore[arg-type]
            dynamic=_same(name, {lookup: use.dynamic for lookup, use in members.items()}, "dynamic"),
            **(options or {}).get(name, {}),
        )
        for name, members in sharing.items()
    }
    return [
        # A missing id is -1, which is to be ignored; all others were checked when they were read.
        FeatureSpec(
            name=lookup,
            table_spec=tables[use.table],
            invalid_ids="ignore",
            combiner=None if use.is_ordered else use.combiner or "table",  # type: ignore[arg-type]
        )
        for lookup, use in uses.items()
    ]


def _same(table: str, values: Mapping[str, T], field: str) -> T:
    (first, value), *others = values.items()
    for other, differs in others:
        if differs != value:
            raise ValueError(
                f"table '{table}' is shared by features that differ in {field}: '{first}' has {value}, "
                f"'{other}' has {differs}; make them alike"
            )
    return value


def _combiner(members: Mapping[str, TableUse]) -> str:
    return next((use.combiner for use in members.values() if use.combiner is not None), "sum")
