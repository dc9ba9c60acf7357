"""Features with dynamic vocabularies: raw 64-bit ids, and a mask of the missing ones."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import DynamicRows, IdFeature, SequenceFeature, without_presence
from sparrow.data.batch import join
from sparrow.data.errors import Problems
from sparrow.data.hashing import hash_texts

ROWS = DynamicRows(rows=10)


def converted(feature, column, **others):
    batch = pa.RecordBatch.from_pydict({"f": column, **others})
    problems = Problems(batch.num_rows)
    return feature.convert(batch, problems), problems


def test_integers_are_ids_as_they_stand_and_minus_one_is_one_of_them():
    column = pa.array([-1, None, 2**64 - 1 - 2**63, 0])
    values, _ = converted(IdFeature("f", embedding_dim=4, dynamic=ROWS), column)
    masked = without_presence(values)
    assert masked.data[[0, 2, 3]].tolist() == [-1, 2**63 - 1, 0]
    assert masked.mask.tolist() == [False, True, False, False]
    unsigned, _ = converted(IdFeature("f", embedding_dim=4, dynamic=ROWS), pa.array([2**64 - 1], pa.uint64()))
    assert without_presence(unsigned).data.tolist() == [-1]


@pytest.mark.parametrize("kind", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_strings_are_ids_by_their_hash(kind):
    texts = pa.array(["a", None, "bb"]).cast(kind)
    masked = without_presence(converted(IdFeature("f", embedding_dim=4, dynamic=ROWS), texts)[0])
    expected = hash_texts(pa.array(["a", "bb"])).view(np.int64)
    assert masked.compressed().tolist() == expected.tolist()


def test_lists_with_weights_and_a_default():
    feature = IdFeature("f", embedding_dim=4, dynamic=ROWS, separator="|", weight_separator=":", as_integer=True)
    bags, _ = converted(feature, pa.array(["7:0.5|9:2", None]))
    assert (bags.values.tolist(), bags.offsets.tolist(), bags.weights.tolist()) == ([7, 9], [0, 2, 2], [0.5, 2.0])
    filled, _ = converted(IdFeature("f", embedding_dim=4, dynamic=ROWS, default=3), pa.array([None, 5]))
    assert without_presence(filled).compressed().tolist() == [3, 5]
    with pytest.raises(ValueError, match="default 'x' is not a valid id"):
        converted(IdFeature("f", embedding_dim=4, dynamic=ROWS, default="x"), pa.array([None, 5]))


def test_sequences_keep_their_last_ids():
    feature = SequenceFeature("f", embedding_dim=4, dynamic=ROWS, max_length=2, pooling="mean")
    bags, _ = converted(feature, pa.array([[-1, 5, None, 2**62], []]))
    assert bags.to_lists() == [[5, 2**62], []]


def test_sequences_in_order_keep_every_id():
    feature = SequenceFeature("f", embedding_dim=4, dynamic=ROWS, max_length=2)
    assert converted(feature, pa.array([[-1, 5, 2**62], [], None, [-1]]))[0].to_lists() == [[5, 2**62], [], [], [-1]]
    assert converted(feature, pa.array([7, None]))[0].to_lists() == [[7], []]
    _, problems = converted(feature, pa.array([[1], [2, None]]))
    assert problems.rows.tolist() == [False, True]
    assert problems.first[2] == "an id of the sequence is missing; give the feature 'f' a default, or a pooling"
    with_default = SequenceFeature("f", embedding_dim=4, dynamic=ROWS, max_length=2, default=9)
    assert converted(with_default, pa.array([[1], [2, None], []]))[0].to_lists() == [[1], [2, 9], [9]]


def test_single_ids_join_lists_of_raw_ids():
    """A file may hold one id a row and the next one lists; -1 is an id like others."""
    feature = IdFeature("f", embedding_dim=4, dynamic=ROWS, pooling="sum")
    single, _ = converted(feature, pa.array([-1, None, 3]))
    lists, _ = converted(feature, pa.array([[4, -1], []]))
    assert join([single, lists]).to_lists() == [[-1], [], [3], [4, -1], []]


def test_bad_values_and_options_are_one_line_each():
    _, problems = converted(IdFeature("f", embedding_dim=4, dynamic=ROWS), pa.array([1.0, 2.5]))
    assert problems.first[2] == "2.5 is not an integer"
    with pytest.raises(ValueError, match="give exactly one of num_buckets, hash_bucket_size, vocabulary and dynamic"):
        IdFeature("f", embedding_dim=4, dynamic=ROWS, num_buckets=4)
    with pytest.raises(ValueError, match=r"follow dynamic\.unknown"):
        IdFeature("f", embedding_dim=4, dynamic=ROWS, unknown="row")
    with pytest.raises(ValueError, match="dynamic: rows must be"):
        DynamicRows(rows=1)
