"""Numbers: read, filled, transformed, cut into buckets."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import (
    RawFeature,
)
from sparrow.data.errors import Problems
from tests.data.converting import convert, first_problem


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5, None, -2.0]),
        pa.array([1.5, float("nan"), -2.0]),
        pa.array(["1.5", "", "-2"]),
        pa.array(["1.5", None, "-2"]).dictionary_encode(),
        pa.array([[1.5], None, [-2.0]]),
        pa.array([[1.5], [None], [-2.0]]),
    ],
    ids=lambda column: str(column.type),
)
def test_numbers_of_any_type(column):
    numbers = convert(RawFeature("x", missing=8.0), x=column)
    assert numbers.dtype == np.float32
    assert numbers.tolist() == [[1.5], [8.0], [-2.0]]


def test_other_number_types():
    for column in (pa.array([1, 0], pa.int64()), pa.array([True, False]), pa.array([1.0, 0.0], pa.float16())):
        assert convert(RawFeature("x"), x=column).tolist() == [[1.0], [0.0]]
    decimals = pa.array([1, None], pa.int64()).cast(pa.decimal128(21, 2))
    assert convert(RawFeature("x"), x=decimals).tolist() == [[1.0], [0.0]]


def test_log_then_standardize():
    x = np.array([0.0, 5.0, -3.0, 1e6])
    expected = (np.log1p(np.maximum(x, 0)) - 0.5) / 2.0
    numbers = convert(RawFeature("x", log=True, mean=0.5, std=2.0), x=pa.array(x))
    np.testing.assert_allclose(numbers[:, 0], expected, rtol=1e-6)


def test_several_numbers_per_row():
    feature = RawFeature("x", dim=2, missing=7.0)
    assert convert(feature, x=pa.array([[1.0, 2.0], None, [3.0, None]])).tolist() == [[1, 2], [7, 7], [3, 7]]
    assert convert(RawFeature("x", dim=2, separator="|"), x=pa.array(["1|2", "3|4"])).tolist() == [[1, 2], [3, 4]]
    assert first_problem(feature, x=pa.array([[1.0, 2.0], [1.0]])) == (
        1,
        "x",
        "feature 'x' needs 2 numbers per row, got 1",
    )


def test_problems_with_numbers():
    assert first_problem(RawFeature("x"), x=pa.array([1.0, float("inf")])) == (1, "x", "inf is not a finite number")
    assert first_problem(RawFeature("x"), x=pa.array(["1", "two"])) == (1, "x", "'two' is not a number")
    assert first_problem(RawFeature("x", missing=None), x=pa.array([1.0, None]))[0] == 1


def test_boundaries_make_buckets():
    feature = RawFeature("x", boundaries=[0.0, 10.0], embedding_dim=4)
    assert convert(feature, x=pa.array([-1.0, 0.0, 9.9, 10.0, None])).tolist() == [0, 1, 1, 2, 1]
    assert (feature.table_use.num_rows, feature.is_sparse, feature.width) == (3, True, 4)
    assert not RawFeature("x", dim=3).is_sparse
    assert RawFeature("x", dim=3).width == 3


def test_decimal_logarithm():
    feature = RawFeature("x", log10_above=1e-3, log10_default=-4.0, mean=1.0, std=2.0)
    x = feature.convert(pa.RecordBatch.from_pydict({"x": [1000.0, 1e-3, -5.0, None]}), Problems(4))
    np.testing.assert_allclose(x[:, 0], [1.0, -2.5, -2.5, -2.5], rtol=1e-6)
