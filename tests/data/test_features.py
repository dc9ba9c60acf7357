"""Features: from Arrow columns of every form to ids and numbers."""

import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import (
    ComboFeature,
    DataError,
    DynamicRows,
    IdFeature,
    Label,
    Pipeline,
    RawFeature,
    RawSequenceFeature,
    SequenceFeature,
    Tables,
    Vocabulary,
    feature_specs,
)
from sparrow.data.batch import take
from sparrow.data.errors import Problems
from sparrow.data.features import registry
from sparrow.data.hashing import hash_integers, hash_texts, modulo
from sparrow.embedding import Embedder, Ragged
from sparrow.rules import SGD


def convert(feature, problems=None, **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    own = Problems(batch.num_rows)
    result = feature.convert(batch, problems if problems is not None else own)
    assert own.first is None, own.first
    return result


def first_problem(feature, **columns):
    problems = Problems(len(next(iter(columns.values()))))
    convert(feature, problems, **columns)
    return problems.first


def id_feature(**fields):
    return IdFeature("x", embedding_dim=4, **fields)


# --- ids -------------------------------------------------------------------------------------------------------------


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
    (batch,) = Pipeline(Tables({"x": texts}), [separated], batch_size=3)
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
    (batch,) = Pipeline(Tables({"x": unsure}), [known], batch_size=3)
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
    (batch,) = Pipeline(Tables({"x": x}), [fixed], batch_size=5)
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


# --- sequences -------------------------------------------------------------------------------------------------------


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


# --- numbers ---------------------------------------------------------------------------------------------------------


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


def test_log_then_standardise():
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


# --- crosses ---------------------------------------------------------------------------------------------------------


def test_crosses():
    feature = ComboFeature("x", cross=("a", "b"), hash_bucket_size=10**6, embedding_dim=4)
    a, b = pa.array(["p", "p", "q", None]), pa.array([1, 2, 1, 1])
    ids = convert(feature, a=a, b=b).tolist()
    assert len(set(ids)) == 4
    assert convert(feature, a=a.dictionary_encode(), b=b).tolist() == ids
    assert convert(dataclasses.replace(feature, cross=("b", "a")), a=a, b=b).tolist() != ids


# --- records ---------------------------------------------------------------------------------------------------------

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


# --- with an Embedder ------------------------------------------------------------------------------------------------


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


def test_decimal_logarithm():
    feature = RawFeature("x", log10_above=1e-3, log10_default=-4.0, mean=1.0, std=2.0)
    x = feature.convert(pa.RecordBatch.from_pydict({"x": [1000.0, 1e-3, -5.0, None]}), Problems(4))
    np.testing.assert_allclose(x[:, 0], [1.0, -2.5, -2.5, -2.5], rtol=1e-6)


# --- descriptions ----------------------------------------------------------------------------------------------------


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
            "words of a vocabulary of 1; one a row, or lists",
            False,
            False,
        ),
        (RawFeature("x", dim=2, missing=None), "x", "lists of 2 numbers", False, False),
        (ComboFeature("x", cross=("a", "b"), hash_bucket_size=9, embedding_dim=4), "a", "integers or", True, True),
        (
            SequenceFeature("x", hash_bucket_size=9, embedding_dim=4, max_length=2),
            "x",
            "integers or strings; one a row, or lists; may be missing",
            False,
            False,
        ),
    ],
)
def test_features_describe_their_columns(feature, column, words, is_general, is_single):
    held = feature.holds(column)
    assert held.words.startswith(words)
    assert (held.is_general, feature.is_single(column)) == (is_general, is_single)
