"""Values of another form than the data of training had, as docs/serving.md has it."""

import numpy as np
import pytest

from sparrow.data import DataError, IdFeature, RawFeature, SequenceFeature
from sparrow.serving.reading import Reading

FEATURES = [
    IdFeature("user", num_buckets=9, embedding_dim=2),
    IdFeature("tags", vocabulary=("red", "blue"), embedding_dim=2, pooling="mean"),
    SequenceFeature("seen", num_buckets=9, embedding_dim=2, max_length=3),
    RawFeature("price"),
    RawFeature("sizes", dim=2),
]
ROW = {"user": 3, "tags": ["red"], "seen": [1, 2], "price": 1.0, "sizes": [1.0, 2.0]}


def read(**fields):
    return Reading(FEATURES).batch({name: [value] for name, value in {**ROW, **fields}.items()})


def test_one_value_instead_of_a_list_is_a_list_of_one():
    assert read(tags="blue").ids["tags"].tolist() == [1]
    assert read(seen=5).ids["seen"].to_lists() == read(seen=[5]).ids["seen"].to_lists() == [[5]]


def test_a_list_instead_of_one_id_is_pooled():
    assert read(user=[3, 4]).ids["user"].to_lists() == [[3, 4]]


def test_true_and_false_are_numbers():
    assert read(price=True).numbers["price"].tolist() == [[1.0]]
    assert read(user=True).ids["user"].tolist() == [1]
    np.testing.assert_array_equal(read(price="2.5").numbers["price"], [[2.5]])


def test_numbers_of_another_count_are_refused():
    for fields in ({"price": [1.0, 2.0]}, {"sizes": 1.0}, {"sizes": [1.0]}):
        with pytest.raises(DataError, match=f"'{next(iter(fields))}' needs [12] numbers per row"):
            read(**fields)
