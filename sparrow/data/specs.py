"""From features to the specs of an `Embedder`: which tables there are, and who shares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sparrow.data.features import Feature, SparseFeature
from sparrow.embedding import FeatureSpec, TableSpec
from sparrow.rules import Rule


def feature_specs(
    features: Sequence[Feature],
    optimizer: Rule | Callable[[str], Rule],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[FeatureSpec]:
    """A `FeatureSpec` for every sparse feature; features that name the same table share it.

    >>> from sparrow.data import IdFeature, SequenceFeature
    >>> from sparrow.rules import RowwiseAdagrad
    >>> item = IdFeature("item", num_buckets=100, embedding_dim=8, table="items")
    >>> seen = SequenceFeature("seen", num_buckets=100, embedding_dim=8, table="items", max_length=20, pooling="mean")
    >>> [(spec.name, spec.table_spec.combiner) for spec in feature_specs([item, seen], RowwiseAdagrad(0.05))]
    [('item', 'mean'), ('seen', 'mean')]

    A table has one way to combine: features that do not say how they pool go along with those that do.

    Args:
      features: dense ones are left out.
      optimizer: of all tables, or a function of the table's name.
      options: other fields of `TableSpec`, such as ``dtype``, by the table's name.
    """
    sharing: dict[str, list[SparseFeature]] = {}
    for feature in features:
        if isinstance(feature, SparseFeature) and feature.is_sparse:
            sharing.setdefault(feature.table_name, []).append(feature)
    tables = {
        name: TableSpec(
            name=name,
            vocabulary_size=_same(name, members, "num_rows"),
            embedding_dim=_same(name, members, "embedding_dim"),
            optimizer=optimizer if isinstance(optimizer, Rule) else optimizer(name),
            combiner=_combiner(name, members),  # type: ignore[arg-type]
            **(options or {}).get(name, {}),
        )
        for name, members in sharing.items()
    }
    return [
        # A missing id is -1, which is to be ignored; all others were checked when they were read.
        FeatureSpec(name=feature.name, table_spec=tables[feature.table_name], invalid_ids="ignore")
        for feature in features
        if isinstance(feature, SparseFeature) and feature.is_sparse
    ]


def _same(table: str, members: Sequence[SparseFeature], field: str) -> int:
    first = members[0]
    for other in members[1:]:
        if getattr(other, field) != getattr(first, field):
            raise ValueError(
                f"table '{table}' is shared by features that differ in {field}: '{first.name}' has "
                f"{getattr(first, field)}, '{other.name}' has {getattr(other, field)}; make them alike"
            )
    value: int = getattr(first, field)
    return value


def _combiner(table: str, members: Sequence[SparseFeature]) -> str:
    pooled = [member for member in members if member.combiner is not None]
    for other in pooled[1:]:
        if other.combiner != pooled[0].combiner:
            raise ValueError(
                f"table '{table}' is shared by features that pool differently: '{pooled[0].name}' by "
                f"{pooled[0].combiner}, '{other.name}' by {other.combiner}; make them alike, or give one its own table"
            )
    return (pooled[0].combiner if pooled else None) or "sum"
