"""Features as records: from a config and back, mistakes, and descriptions of their columns."""

import pytest

from sparrow.data import (
    ComboFeature,
    DataError,
    IdFeature,
    Label,
    RawFeature,
    SequenceFeature,
    Vocabulary,
)
from sparrow.data.features import registry
from tests.data.converting import id_feature

RECORDS = [
    IdFeature("user", num_buckets=10, embedding_dim=4, pooling="mean", weight_column="w"),
    IdFeature("tags", vocabulary=("a", "b"), embedding_dim=4, separator="|", unknown="empty"),
    RawFeature("price", log=True, mean=1.0, std=2.0),
    RawFeature("age", boundaries=(1.0, 2.0), embedding_dim=4, table="ages"),
    ComboFeature("ab", cross=("a", "b"), hash_bucket_size=100, embedding_dim=4),
    SequenceFeature("seen", hash_bucket_size=100, embedding_dim=4, max_length=5, keep="first"),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_records_round_trip(record):
    assert registry.from_dict(registry.to_dict(record)) == record
    assert registry.from_json(registry.to_json(record)) == record
    assert registry.from_yaml(registry.to_yaml(record)) == record


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: id_feature(),
            "feature 'x': give exactly one of num_buckets, hash_bucket_size, vocabulary and dynamic, got none",
        ),
        (lambda: id_feature(num_buckets=3, hash_bucket_size=3), "give exactly one of"),
        (lambda: id_feature(num_buckets=0), "num_buckets must be an integer of at least 1, got 0"),
        (lambda: id_feature(hash_bucket_size=5, unknown="row"), "a hashed feature knows every id"),
        (
            lambda: id_feature(num_buckets=5, unknown="rows"),
            "got 'rows'; did you mean 'row'",
        ),
        (
            lambda: id_feature(num_buckets=5, pooling="avg"),
            "feature 'x': pooling must be one of 'sum', ",
        ),
        (lambda: IdFeature("", num_buckets=5, embedding_dim=4), "name must be a string that is not empty"),
        (lambda: RawFeature("x", std=0.0), "feature 'x': std must be a finite number above 0, got 0.0"),
        (lambda: RawFeature("x", boundaries=(2.0, 1.0), embedding_dim=4), "must increase, but 1 comes after 2"),
        (lambda: RawFeature("x", boundaries=(2.0,)), "embedding_dim must be an integer .*, got None"),
        (lambda: RawFeature("x", embedding_dim=4), "embedding_dim, table and pooling belong to buckets"),
        (lambda: ComboFeature("x", cross=("a",), hash_bucket_size=5, embedding_dim=4), "two columns or more"),
        (lambda: SequenceFeature("x", num_buckets=5, embedding_dim=4, max_length=0), "max_length must be an integer"),
        (lambda: Label("y", at_least=float("nan")), "label 'y': at_least must be a finite number, got nan"),
        (lambda: registry.from_dict({"kind": "idd", "name": "x"}), "unknown feature 'idd': did you mean 'id'"),
        (
            lambda: registry.from_dict({"kind": "id", "name": "x", "embedding_dims": 3}),
            "embedding_dims: unknown field: did you",
        ),
        (lambda: registry.from_dict({"name": "x"}), "a mapping with a 'kind', got"),
        (lambda: Vocabulary(["a", "b", "a"]), "holds the word 'a' twice"),
        (lambda: Vocabulary([]), "holds no words"),
    ],
)
def test_wrong_records(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_only_a_bucketed_number_has_a_table():
    assert RawFeature("x", dim=3).table_use is None
    use = RawFeature("x", boundaries=(1.0, 2.0), embedding_dim=4, table="ages").table_use
    assert (use.table, use.num_rows, use.embedding_dim, use.combiner) == ("ages", 3, 4, None)


def test_a_table_is_described_before_its_vocabulary_is_there(tmp_path):
    feature = IdFeature("x", vocabulary=str(tmp_path / "words.txt"), embedding_dim=4)
    use = feature.table_use
    assert (use.table, use.embedding_dim) == ("x", 4)
    with pytest.raises(DataError, match=r"words\.txt"):
        use.count_rows()


@pytest.mark.parametrize(
    ("feature", "column", "words", "is_general", "is_single"),
    [
        (id_feature(num_buckets=9), "x", "integers from 0 to 8; may be missing", False, False),
        (id_feature(num_buckets=9, default=1), "x", "integers from 0 to 8; may be missing", False, True),
        (id_feature(num_buckets=9, weight_column="w"), "w", "as many weights as ids of 'x'", False, False),
        (
            id_feature(vocabulary=("a",), pooling="sum"),
            "x",
            "words of a vocabulary of 1; one per row, or lists",
            False,
            False,
        ),
        (RawFeature("x", dim=2, missing=None), "x", "lists of 2 numbers", False, False),
        (ComboFeature("x", cross=("a", "b"), hash_bucket_size=9, embedding_dim=4), "a", "integers or", True, True),
        (
            SequenceFeature("x", hash_bucket_size=9, embedding_dim=4, max_length=2),
            "x",
            "integers or strings; one per row, or lists; may be missing",
            False,
            False,
        ),
    ],
)
def test_features_describe_their_columns(feature, column, words, is_general, is_single):
    assert feature.holds(column).startswith(words)
    assert (feature.is_general, feature.is_single(column)) == (is_general, is_single)
