"""Ids: from columns of every form to rows of a table; weights, and crosses of columns."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import (
    ComboFeature,
    DataError,
    DynamicRows,
    IdFeature,
    Tables,
    Vocabulary,
)
from sparrow.data.errors import Problems
from sparrow.data.features import registry
from sparrow.data.hashing import hash_integers, hash_texts, modulo
from tests.data.converting import convert, first_problem, id_feature
from tests.feed.pipelines import pipeline_of


@pytest.mark.parametrize(
    "column",
    [
        pa.array([3, 0, 9], pa.int64()),
        pa.array([3, 0, 9], pa.uint8()),
        pa.array([3.0, 0.0, 9.0]),
        pa.array(["3", " 0 ", "9"]),
        pa.array(["3", "0", "9"], pa.large_string()),
        pa.array(["3", "0", "9"]).dictionary_encode(),
        pa.array([3, 0, 9]).dictionary_encode(),
        pa.array([5, 3, 0, 9]).slice(1),
    ],
    ids=lambda column: str(column.type),
)
def test_numbered_ids_of_any_type(column):
    ids = convert(id_feature(num_buckets=10), x=column)
    assert ids.dtype == np.int32
    assert ids.tolist() == [3, 0, 9]


def test_missing_ids_are_minus_one_or_the_default():
    for column in (pa.array([3, None]), pa.array([3.0, float("nan")]), pa.array(["3", ""]), pa.array(["3", None])):
        assert convert(id_feature(num_buckets=10), x=column).tolist() == [3, -1]
        assert convert(id_feature(num_buckets=10, default=7), x=column).tolist() == [3, 7]
    words = pa.array(["a", None]).dictionary_encode()
    assert convert(id_feature(vocabulary=("b", "a"), default="b"), x=words).tolist() == [1, 0]
    nothing = pa.array([None, None], pa.string()).dictionary_encode()
    assert convert(id_feature(hash_bucket_size=10), x=nothing).tolist() == [-1, -1]


def test_a_default_is_an_id_of_the_columns_own_type():
    feature = id_feature(hash_bucket_size=10**6, default=17)
    assert len(set(convert(feature, x=pa.array(["17", None])).tolist())) == 1
    assert len(set(convert(feature, x=pa.array(["17", None]).dictionary_encode()).tolist())) == 1
    assert len(set(convert(feature, x=pa.array([17, None])).tolist())) == 1
    assert len(set(convert(dataclasses.replace(feature, default="17"), x=pa.array([17, None])).tolist())) == 1


def test_a_default_outside_the_table_is_refused():
    with pytest.raises(ValueError, match="feature 'x': default 12 is not a valid id: id 12 is outside 0 to 9"):
        convert(id_feature(num_buckets=10, default=12), x=pa.array([None, 1]))


def test_a_row_without_ids_has_the_default():
    lists = pa.array([[3, 4], [], None, [None]])
    assert convert(id_feature(num_buckets=10), x=lists).to_lists() == [[3, 4], [], [], []]
    assert convert(id_feature(num_buckets=10, default=7), x=lists).to_lists() == [[3, 4], [7], [7], [7]]
    texts = pa.array(["3|4", "", None])
    separated = id_feature(num_buckets=10, default=7, separator="|")
    assert convert(separated, x=texts).to_lists() == [[3, 4], [7], [7]]
    (batch,) = pipeline_of(Tables({"x": texts}), [separated], batch_size=3)
    assert batch.ids["x"].to_lists() == [[3, 4], [7], [7]]
    weighted = id_feature(num_buckets=10, default=7, separator="|", weight_separator=":")
    bags = convert(weighted, x=pa.array(["3:0.5", None]))
    assert (bags.to_lists(), bags.weights.tolist()) == ([[3], [7]], [0.5, 1.0])
    words = id_feature(vocabulary=("a",), default="b", unknown="empty", separator="|")
    assert convert(words, x=texts).to_lists() == [[], [], []]
    known = id_feature(vocabulary=("a", "3"), default="a", unknown="empty", separator="|")
    expected = [[1], [], [0]]  # a row of unknown ids is not one without ids
    unsure = pa.array(["3|4", "4", None])
    assert convert(known, x=unsure).to_lists() == expected
    (batch,) = pipeline_of(Tables({"x": unsure}), [known], batch_size=3)
    assert batch.ids["x"].to_lists() == expected
    raw = id_feature(dynamic=DynamicRows(rows=9), default=-1, separator="|", as_integer=True)
    assert convert(raw, x=texts).to_lists() == [[3, 4], [-1], [-1]]


def test_a_vocabulary_may_give_the_rows():
    rows = {"red": 2, "crimson": 2, "blue": 5}
    x = pa.array(["blue", "crimson", "red", "black", None])
    assert id_feature(vocabulary=rows).num_rows == 7
    assert convert(id_feature(vocabulary=rows), x=x).tolist() == [5, 2, 2, 6, -1]
    fixed = id_feature(vocabulary=rows, unknown=1, default="red")
    assert fixed.num_rows == 6
    assert convert(fixed, x=x).tolist() == [5, 2, 2, 1, 2]
    assert convert(id_feature(vocabulary=("red", "blue"), unknown=7), x=x).tolist() == [1, 7, 0, 7, -1]
    assert id_feature(vocabulary=("red", "blue"), unknown=7).num_rows == 8
    assert id_feature(num_buckets=3, unknown=0).num_rows == 3
    assert convert(id_feature(num_buckets=3, unknown=0), x=pa.array([2, 9])).tolist() == [2, 0]
    (batch,) = pipeline_of(Tables({"x": x}), [fixed], batch_size=5)
    assert batch.ids["x"].tolist() == [5, 2, 2, 1, 2]
    assert registry.from_yaml(registry.to_yaml(fixed)) == fixed


def test_a_file_may_give_the_rows(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("red 2\ndark red 2\r\nblue 5\n", newline="")
    feature = id_feature(vocabulary=str(path), vocabulary_has_rows=True)
    assert convert(feature, x=pa.array(["dark red", "blue", "x"])).tolist() == [2, 5, 6]
    feature.words.save(tmp_path / "copy.txt")
    assert feature.parse_words((tmp_path / "copy.txt").read_bytes(), "copy").content == feature.words.content
    path.write_text("red 2\nblue\n")
    again = id_feature(vocabulary=str(path), vocabulary_has_rows=True)
    with pytest.raises(DataError, match="line 2 must be a word, a space and a row, got 'blue'"):
        convert(again, x=pa.array(["red"]))


def test_wrong_vocabularies_with_rows():
    for fields, message in (
        ({"vocabulary": {"a": -1}}, "the row of the word 'a' must be an integer from 0, got -1"),
        ({"vocabulary": ("a",), "unknown": -2}, "unknown must be an integer of at least 0"),
        ({"vocabulary": ("a",), "vocabulary_has_rows": True}, "vocabulary_has_rows is about a file"),
    ):
        with pytest.raises(ValueError, match=message):
            convert(id_feature(**fields), x=pa.array(["a"]))


@pytest.mark.parametrize("unknown", [("error", None), ("empty", [2, -1, -1]), ("row", [2, 10, 10])])
def test_ids_outside_num_buckets(unknown):
    policy, expected = unknown
    feature = id_feature(num_buckets=10, unknown=policy)
    if expected is None:
        assert first_problem(feature, x=pa.array([2, 10, -1])) == (
            1,
            "x",
            "id 10 is outside 0 to 9; correct the data, or num_buckets of feature 'x'",
        )
    else:
        assert convert(feature, x=pa.array([2, 10, -1])).tolist() == expected
    assert feature.num_rows == (11 if policy == "row" else 10)


def test_hashed_ids():
    feature = id_feature(hash_bucket_size=1000)
    integers, texts = np.array([5, -(2**62), 2**62]), pa.array(["68fd1e64", "x", "a long text that takes three words"])
    assert convert(feature, x=pa.array(integers)).tolist() == modulo(hash_integers(integers), 1000).tolist()
    expected = modulo(hash_texts(texts), 1000).tolist()
    assert convert(feature, x=texts).tolist() == expected
    assert convert(feature, x=texts.dictionary_encode()).tolist() == expected
    assert (
        convert(feature, x=pa.array([2**64 - 1], pa.uint64())).tolist() == convert(feature, x=pa.array([-1])).tolist()
    )


def test_as_integer_hashes_texts_like_numbers():
    feature = id_feature(hash_bucket_size=1000, as_integer=True)
    assert convert(feature, x=pa.array(["17", "5"])).tolist() == convert(feature, x=pa.array([17, 5])).tolist()
    assert first_problem(feature, x=pa.array(["17", "five"])) == (1, "x", "'five' is not an integer")


def test_vocabulary_from_a_list_and_a_file(tmp_path):
    Vocabulary(["b", "a"]).save(tmp_path / "words.txt")
    for vocabulary in (("b", "a"), str(tmp_path / "words.txt")):
        feature = id_feature(vocabulary=vocabulary)
        assert feature.num_rows == 3
        assert convert(feature, x=pa.array(["a", "b", "c", None])).tolist() == [1, 0, 2, -1]
    strict = id_feature(vocabulary=("b", "a"), unknown="error")
    assert first_problem(strict, x=pa.array(["a", "zz"]))[2].startswith("'zz' is not in the vocabulary of feature 'x'")


def test_vocabulary_of_numbers():
    feature = id_feature(vocabulary=(1999, -5))
    assert convert(feature, x=pa.array([-5, 1999, 7])).tolist() == [1, 0, 2]
    assert convert(feature, x=pa.array(["-5", "1999", "7"])).tolist() == [1, 0, 2]


def test_lists_and_separated_texts():
    expected = [[1, 2], [], [3]]
    feature = id_feature(num_buckets=10)
    lists = [[1, 2], None, [3]]
    for kind in (pa.list_(pa.int64()), pa.large_list(pa.int32()), pa.list_(pa.string())):
        values = [None if row is None else [str(v) for v in row] for row in lists] if "string" in str(kind) else lists
        assert convert(feature, x=pa.array(values, kind)).to_lists() == expected
    split = id_feature(num_buckets=10, separator="\x03")
    assert convert(split, x=pa.array(["1\x032", "", "3"])).to_lists() == expected
    assert convert(split, x=pa.array(["1\x032", "", "3"]).dictionary_encode()).to_lists() == expected
    assert convert(feature, x=pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))).to_lists() == [[1, 2], [3, 4]]
    sliced = pa.array([[9], [1, None, 2], [3]]).slice(1)
    assert convert(feature, x=sliced).to_lists() == [[1, 2], [3]]


def test_a_bad_id_in_a_list_names_its_row():
    row, _, why = first_problem(id_feature(num_buckets=10), x=pa.array([[1, 2], [], [3, 77]]))
    assert (row, why.split(";")[0]) == (2, "id 77 is outside 0 to 9")


def test_weights():
    feature = id_feature(num_buckets=10, weight_column="w")
    bags = convert(feature, x=pa.array([[1, None, 2], []]), w=pa.array([[0.5, 9.0, 2.0], None]))
    assert bags.to_lists() == [[1, 2], []]
    assert bags.weights.tolist() == [0.5, 2.0]
    single = convert(feature, x=pa.array([1, None]), w=pa.array([0.5, 2.0]))
    assert (single.to_lists(), single.weights.tolist()) == ([[1], []], [0.5])
    problem = first_problem(feature, x=pa.array([[1], [2, 3]]), w=pa.array([[1.0], [1.0]]))
    assert problem == (1, "w", "2 ids in column 'x' need as many weights, got 1")
    assert first_problem(feature, x=pa.array([[1]]), w=pa.array([[None]], pa.list_(pa.float32())))[2] == (
        "a weight is missing"
    )


def test_weights_beside_the_ids():
    feature = IdFeature("seen", num_buckets=9, embedding_dim=4, separator="|", weight_separator=":")
    column = ["3:0.5|7:2", "", None, "1:1"]
    bags = feature.convert(pa.RecordBatch.from_pydict({"seen": column}), Problems(4))
    assert bags.to_lists() == [[3, 7], [], [], [1]]
    np.testing.assert_array_equal(bags.weights, np.float32([0.5, 2, 1]))
    problems = Problems(3)
    feature.convert(pa.RecordBatch.from_pydict({"seen": ["1:1", "2", "3:x"]}), problems)
    assert problems.rows.tolist() == [False, True, True]
    assert problems.first == (1, "seen", "a weight is missing")
    assert "needs ids with weights, such as '7:0.5'" in feature.refuse("seen", pa.int64())


def test_crosses():
    feature = ComboFeature("x", cross=("a", "b"), hash_bucket_size=10**6, embedding_dim=4)
    a, b = pa.array(["p", "p", "q", None]), pa.array([1, 2, 1, 1])
    ids = convert(feature, a=a, b=b).tolist()
    assert len(set(ids)) == 4
    assert convert(feature, a=a.dictionary_encode(), b=b).tolist() == ids
    assert convert(dataclasses.replace(feature, cross=("b", "a")), a=a, b=b).tolist() != ids
