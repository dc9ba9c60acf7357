"""Computed columns of expressions, combined values, sequences and functions of your own."""

import pyarrow as pa
import pytest

from sparrow.data import (
    BoolMask,
    Bucketize,
    Combine,
    Constant,
    Custom,
    Each,
    Expr,
    Lookup,
    RegexReplace,
    register_function,
)
from sparrow.data.errors import DataError
from tests.data.computing import column, mistakes


def test_expr():
    made = column(Expr("a + b"), a=["0.2", "", "0.3", None], b=[0.2] * 4)
    assert made == [pytest.approx(0.4), None, pytest.approx(0.5), None]
    assert column(Expr("a == b ? 1 : 0"), a=[1, 1, None], b=[1, 2, 3]) == [1.0, 0.0, None]
    assert column(Expr("dot(a, b)"), a=[[1, 2], []], b=[[3, 4], [5, 6]]) == [11.0, None]
    assert column(Expr("a * 2", separator="|"), a=["1|2", None, "3"]) == [[2.0, 4.0], None, [6.0]]
    assert column(Expr("log(a)"), a=[-1.0]) == [None]
    nested = Expr("m / 2 + k", variables={"m": Lookup("map", "key"), "k": "other"})
    assert nested.columns == ("map", "key", "other")
    assert column(nested, map=["a:4", "a:4"], key=["a", "b"], other=[1, 1]) == [3.0, None]
    assert mistakes(Expr("a + b"), a=[[1, 2], [1]], b=[[1], [1]]) == (
        [True, False],
        "lists of different lengths meet in 'a + b'; give the expression a fill",
    )
    filled = Expr("a + b", fill=0.5)
    assert column(filled, a=[[1, 2], [1]], b=[[1], [1, 2, 3]]) == [[2.0, 2.5], [2.0, 2.5, 3.5]]
    assert column(Expr("reduce_max(a) + b", fill=9), a=[[1, 2]], b=[[1, 2, 3]]) == [
        [3.0, 4.0, 5.0]
    ]  # one list meets none
    assert mistakes(Expr("a + 1"), a=["1", "x"]) == ([False, True], "'x' is not a number")


@pytest.mark.parametrize(
    ("combiner", "expected"), [("sum", 3.5), ("mean", 1.75), ("min", 0.5), ("max", 3.0), ("count", 2.0)]
)
def test_combine(combiner, expected):
    words = Combine("a", values={"x": 3.0, "y": 0.5}, combiner=combiner, separator="|")
    assert column(words, a=["x|other|y", "other", "", None]) == [expected, None, None, None]
    assert column(words, a=[["x", "y", None], [], None])[:2] == [expected, None]
    numbers = Combine("a", combiner=combiner)
    assert column(numbers, a=[[3.0, 0.5], [None], None]) == [expected, None, None]


def test_combined_words_must_be_numbers_without_values():
    assert mistakes(Combine("a", separator="|"), a=["1|2", "1|x"]) == ([False, True], "'x' is not a number")


def test_bucketize_constant_mask_and_texts():
    assert column(Bucketize("a", boundaries=(1.0, 2.0)), a=[0.5, 1.0, None, 9.0]) == [0, 1, None, 2]
    assert column(Bucketize("a", boundaries=(1.0,)), a=[[0.5, 1.0], None]) == [[0, 1], None]
    assert column(Constant("x"), a=[1, 2]) == ["x", "x"]
    for mask in ("true,false,true,false", [1, 0, 1, 0], [True, False, True, False]):
        assert column(BoolMask("v", "k", separator=","), v=["1,2,3,4"], k=[mask]) == [["1", "3"]]
    assert column(BoolMask("v", "k"), v=[[1, 2], None], k=[[0, 1], None]) == [[2], None]
    assert mistakes(BoolMask("v", "k"), v=[[1, 2]], k=[[1]]) == ([True], "2 values need as many marks, got 1")
    assert column(RegexReplace("t", pattern="[0-9]+", replacement="#"), t=["a1b22", None]) == ["a#b#", None]


def test_each_element_of_sequences():
    record = Each(Lookup("m", "k"), sequences=("k",), separator=";")
    assert column(record, m=["a:1\x1db:2", "a:5", None], k=["b;a;c", "a", "a;b"]) == [
        [2.0, 1.0, None],
        [5.0],
        [None, None],
    ]
    two = Each(Expr("a - b"), sequences=("a", "b"))
    assert column(two, a=[[3, 4], [], None], b=[[1, 1], [], None]) == [[2.0, 3.0], [], []]
    rows, why = mistakes(two, a=[[1, 2], [1]], b=[[1], [1]])
    assert rows == [True, False]
    assert why == "sequences must have one length, got 2 of 'a' and 1"
    assert (
        two.refuse("a", pa.int64())
        == "'each' reads sequences: lists, or strings with a separator, the column holds int64"
    )


@register_function("test_too_few")
def too_few(texts):
    return [1.0]


def test_custom_functions():
    assert column(Custom("test_initials", ("t",), options={"times": 2}), t=["ab", None]) == ["aa", None]
    with pytest.raises(ValueError, match=r"unknown function 'test_initals': did you mean 'test_initials'.*--import"):
        Custom("test_initals", ("t",))
    with pytest.raises(DataError, match="returned 1 values for 2 rows"):
        column(Custom("test_too_few", ("t",)), t=["a", "b"])
    with pytest.raises(DataError, match="'test_initials' failed: TypeError"):
        column(Custom("test_initials", ("t",)), t=[1, 2])
