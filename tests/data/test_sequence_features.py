"""Sequences: ids and numbers in order, from lists and separated strings."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import (
    IdFeature,
    RawSequenceFeature,
    SequenceFeature,
    feature_specs,
)
from sparrow.data.batch import take
from sparrow.data.errors import Problems
from sparrow.rules import SGD
from tests.data.converting import convert


@pytest.mark.parametrize(
    ("keep", "in_order", "bags"),
    [("last", [[3, 4], [5], []], [[3, 4], [5], []]), ("first", [[1, -1], [5], []], [[1, 3], [5], []])],
)
def test_sequences(keep, in_order, bags):
    """In order, a missing id of a list keeps its place; in a bag it does not count."""
    column = pa.array([[1, None, 3, 4], [5], None])
    ordered = SequenceFeature("x", num_buckets=10, embedding_dim=4, max_length=2, keep=keep)
    assert convert(ordered, x=column).to_lists() == in_order
    assert (ordered.sequence_length, ordered.table_use.is_ordered) == (2, True)
    pooled = dataclasses.replace(ordered, pooling="mean")
    assert convert(pooled, x=column).to_lists() == bags
    assert (pooled.sequence_length, pooled.table_use.is_ordered) == (None, False)


def test_a_sequence_of_single_values_has_one_element_or_none():
    single = SequenceFeature("x", num_buckets=10, embedding_dim=4, max_length=2)
    assert convert(single, x=pa.array([3, None])).to_lists() == [[3], []]
    assert convert(RawSequenceFeature("x", max_length=2), x=pa.array([3.0, None])).offsets.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("fields", "column", "expected"),
    [
        ({}, pa.array([[1.0, None, 3.0], [], None, [4.0]]), [[[0.0], [3.0]], [], [], [[4.0]]]),
        ({"separator": ";"}, pa.array(["1;2;3", "", None, "4"]), [[[2.0], [3.0]], [], [], [[4.0]]]),
        ({"mean": 1.0, "std": 2.0}, pa.array([[1, 3]]), [[[0.0], [1.0]]]),
        ({"dim": 2}, pa.array([[[1.0, 2.0], [3.0, 4.0]], []]), [[[1.0, 2.0], [3.0, 4.0]], []]),
        (
            {"dim": 2, "separator": ";", "value_separator": ","},
            pa.array(["1,2;3,4;5,6", None]),
            [[[3.0, 4.0], [5.0, 6.0]], []],
        ),
        ({"boundaries": (2.0, 5.0), "embedding_dim": 4}, pa.array([[1, 2, 9], [3]]), [[1, 2], [1]]),
    ],
)
def test_numbers_in_order(fields, column, expected):
    feature = RawSequenceFeature("x", max_length=2, **fields)
    assert feature.refuse("x", column.type) is None
    made = convert(feature, x=column)
    assert [made.values[a:b].tolist() for a, b in itertools.pairwise(made.offsets)] == expected
    assert made.values.dtype == (np.int32 if "boundaries" in fields else np.float32)
    rows = take(made, np.arange(len(column))[::-1])
    assert [rows.values[a:b].tolist() for a, b in itertools.pairwise(rows.offsets)] == expected[::-1]


def test_bad_numbers_in_order_name_their_row():
    problems = Problems(2)
    RawSequenceFeature("x", max_length=2, separator=";").convert(
        pa.RecordBatch.from_pydict({"x": ["1;2", "3;oops;4"]}), problems
    )
    assert problems.first == (1, "x", "'oops' is not a number")
    with pytest.raises(ValueError, match="separator and value_separator must differ"):
        RawSequenceFeature("x", max_length=2, dim=2, separator=";", value_separator=";")
    assert "needs a separator" in RawSequenceFeature("x", max_length=2).refuse("x", pa.string())


def test_an_id_and_a_mean_pooled_sequence_share_a_table():
    item = IdFeature("item", num_buckets=10, embedding_dim=4, table="t", pooling="sum")
    pooled = SequenceFeature("pooled", num_buckets=10, embedding_dim=4, table="t", max_length=3, pooling="mean")
    ordered = SequenceFeature("ordered", num_buckets=10, embedding_dim=4, table="t", max_length=3)
    specs = feature_specs([item, pooled, ordered], SGD(0.1))
    assert [(spec.name, spec.combiner) for spec in specs] == [("item", "sum"), ("pooled", "mean"), ("ordered", None)]
