"""Tables that features share, and features that cannot share one."""

import numpy as np
import pytest

from sparrow.data import (
    IdFeature,
    RawFeature,
    SequenceFeature,
    feature_specs,
)
from sparrow.embedding import Embedder, Ragged
from sparrow.rules import SGD


def test_feature_specs_share_tables_and_ignore_missing_ids():
    features = [
        IdFeature("item", num_buckets=10, embedding_dim=4, table="items"),
        SequenceFeature("seen", num_buckets=10, embedding_dim=4, table="items", max_length=3, pooling="mean"),
        RawFeature("price"),
        RawFeature("age", boundaries=(1.0,), embedding_dim=4),
    ]
    specs = feature_specs(features, lambda table: SGD({"items": 0.1, "age": 0.2}[table]))
    assert [(spec.name, spec.table_spec.name, spec.table_spec.combiner) for spec in specs] == [
        ("item", "items", "mean"),
        ("seen", "items", "mean"),
        ("age", "age", "sum"),
    ]
    ids = np.array([3, -1], np.int32)
    packed = Embedder(specs).pack({"item": ids, "seen": Ragged([1, 2], [0, 2, 2]), "age": np.array([0, 1])})
    assert packed.lookups  # a missing id (-1) is accepted


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (IdFeature("b", num_buckets=11, embedding_dim=4, table="t"), "differ in num_rows: 'a' has 10, 'b' has 11"),
        (IdFeature("b", num_buckets=10, embedding_dim=8, table="t"), "differ in embedding_dim: 'a' has 4, 'b' has 8"),
    ],
)
def test_features_that_cannot_share_a_table(other, message):
    first = IdFeature("a", num_buckets=10, embedding_dim=4, table="t", pooling="sum")
    with pytest.raises(ValueError, match=message):
        feature_specs([first, other], SGD(0.1))
