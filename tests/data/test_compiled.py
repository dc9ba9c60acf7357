"""The compiled conversions and NumPy's: the same arrays, the same errors, for any columns."""

import decimal

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import (
    ComboFeature,
    DataError,
    DynamicRows,
    Feature,
    IdFeature,
    Label,
    RawFeature,
    SequenceFeature,
    Tables,
    hashing,
    without_presence,
)
from sparrow.data.batch import Batch, take
from sparrow.data.block import Block, concatenate
from sparrow.data.converter import Converter
from sparrow.data.labels import CheckedLabel, LabelCheck
from sparrow.embedding import Ragged
from sparrow.kernels import feed

pytestmark = pytest.mark.skipif(feed.unavailable() is not None, reason=str(feed.unavailable()))

ROWS = DynamicRows(rows=10)
WORDS = ("a", "b", "17", "-3", "0", "longer than eight bytes", "ü")
VALUES = {
    "int8": (pa.int8(), st.integers(-5, 40)),
    "int32": (pa.int32(), st.integers(-5, 40)),
    "int64": (pa.int64(), st.integers(-5, 40) | st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 40) | st.integers(0, 2**64 - 1)),
    "bool": (pa.bool_(), st.booleans()),
    "float": (pa.float32(), st.sampled_from([0.0, 3.0, -1.0, 7.0, 2.5, float("nan"), 1e20])),
    "double": (pa.float64(), st.sampled_from([0.0, 3.0, -1.0, 9.0, 2.5, float("nan"), float("inf"), 0.1])),
    "decimal": (pa.decimal128(5, 1), st.sampled_from([1, 2, 3]).map(lambda n: decimal.Decimal(n))),
    "texts": (
        pa.string(),
        st.sampled_from([*WORDS, "", "5", "1.5", "1e3", " 4 ", "+2", "0x10", "nan", "-0", "x" * 20]),
    ),
    "digits": (pa.large_string(), st.integers(-3, 30).map(str)),
    "several": (
        pa.string(),
        st.sampled_from(["a|b", "", "a", "|", "3|x||4", "a:1|b:0.5", "b:", ":2", "7:1:2|8:x", "1|2"]),
    ),
}
FEATURES = [
    lambda c: IdFeature("f", column=c, num_buckets=30, embedding_dim=2),
    lambda c: IdFeature("f", column=c, num_buckets=30, embedding_dim=2, unknown="row", default=7),
    lambda c: IdFeature("f", column=c, num_buckets=30, embedding_dim=2, unknown="empty", separator="|"),
    lambda c: IdFeature("f", column=c, hash_bucket_size=1000, embedding_dim=2, default="nothing"),
    lambda c: IdFeature("f", column=c, hash_bucket_size=2**30 + 7, embedding_dim=2, as_integer=True),
    lambda c: IdFeature("f", column=c, vocabulary=WORDS, embedding_dim=2, default="zz"),
    lambda c: IdFeature("f", column=c, vocabulary=("17", "-3", "0", "5"), embedding_dim=2, unknown="error"),
    lambda c: IdFeature("f", column=c, hash_bucket_size=99, embedding_dim=2, separator="|", weight_separator=":"),
    lambda c: IdFeature("f", column=c, hash_bucket_size=99, embedding_dim=2, separator="|", weight_column="w"),
    lambda c: IdFeature("f", column=c, hash_bucket_size=99, embedding_dim=2, separator="|", default="a"),
    lambda c: IdFeature(
        "f", column=c, hash_bucket_size=99, embedding_dim=2, separator="|", weight_separator=":", default="a"
    ),
    lambda c: SequenceFeature("f", column=c, hash_bucket_size=99, embedding_dim=2, max_length=2, separator="|"),
    lambda c: SequenceFeature("f", column=c, num_buckets=40, embedding_dim=2, max_length=1, keep="first", default=3),
    lambda c: SequenceFeature("f", column=c, hash_bucket_size=9, embedding_dim=2, max_length=2, pooling="mean"),
    lambda c: IdFeature("f", column=c, dynamic=ROWS, embedding_dim=2),
    lambda c: IdFeature("f", column=c, dynamic=ROWS, embedding_dim=2, default=7),
    lambda c: IdFeature("f", column=c, dynamic=ROWS, embedding_dim=2, default="nothing"),
    lambda c: IdFeature("f", column=c, dynamic=ROWS, embedding_dim=2, as_integer=True, default=-(2**62)),
    lambda c: IdFeature("f", column=c, dynamic=ROWS, embedding_dim=2, separator="|", default="a"),
    lambda c: IdFeature("f", column=c, dynamic=ROWS, embedding_dim=2, separator="|", weight_separator=":"),
    lambda c: IdFeature("f", column=c, dynamic=ROWS, embedding_dim=2, separator="|", weight_column="w", default=4),
    lambda c: SequenceFeature("f", column=c, dynamic=ROWS, embedding_dim=2, max_length=2, separator="|"),
    lambda c: SequenceFeature("f", column=c, dynamic=ROWS, embedding_dim=2, max_length=1, keep="first", default=3),
    lambda c: SequenceFeature("f", column=c, dynamic=ROWS, embedding_dim=2, max_length=2, pooling="mean"),
    lambda c: RawFeature("f", column=c),
    lambda c: RawFeature("f", column=c, log=True, mean=0.3, std=1.7, missing=2.0),
    lambda c: RawFeature("f", column=c, missing=None, log10_above=1.0),
    lambda c: RawFeature("f", column=c, dim=2, separator="|"),
    lambda c: RawFeature("f", column=c, boundaries=(0.0, 2.5, 10.0), embedding_dim=2),
    lambda c: RawFeature("f", column=c, dim=2, separator="|", boundaries=(0.0, 2.5, 10.0), embedding_dim=2),
    lambda c: ComboFeature("f", cross=(c, "other"), hash_bucket_size=77, embedding_dim=2),
]


@st.composite
def tables(draw):
    kind, values = draw(st.sampled_from(list(VALUES.values())))
    rows = draw(st.integers(0, 12))
    form = draw(st.sampled_from(["plain", "list", "large_list", "fixed", "dictionary"]))
    if form == "dictionary" and (pa.types.is_decimal(kind) or pa.types.is_boolean(kind)):
        form = "plain"
    entries = values | st.none() if draw(st.booleans()) else values
    if form in ("list", "large_list"):
        lists = st.lists(entries, max_size=3)
        column = pa.array(
            draw(st.lists(lists | st.none(), min_size=rows, max_size=rows)),
            pa.list_(kind) if form == "list" else pa.large_list(kind),
        )
    elif form == "fixed":
        column = pa.array(
            draw(st.lists(st.lists(entries, min_size=2, max_size=2), min_size=rows, max_size=rows)), pa.list_(kind, 2)
        )
    else:
        column = pa.array(draw(st.lists(entries, min_size=rows, max_size=rows)), kind)
        column = column.dictionary_encode() if form == "dictionary" else column
    weights = st.sampled_from(["1", "0.5|2", "1|1|x", "", "0.25|3"])
    table = pa.table(
        {
            "c": column,
            "w": draw(st.lists(weights | st.none(), min_size=rows, max_size=rows))
            if rows
            else pa.array([], pa.string()),
            "other": pa.array(
                draw(st.lists(st.sampled_from(["x", "", None]), min_size=rows, max_size=rows)), pa.string()
            ),
            "label": pa.array(draw(st.lists(st.integers(0, 1), min_size=rows, max_size=rows)), pa.int64()),
            "weight": pa.array(
                draw(st.lists(st.sampled_from([1.0, 0.5, -1.0]), min_size=rows, max_size=rows)), pa.float64()
            ),
        }
    )
    return table.slice(draw(st.integers(0, 2)))


def both(converter, table, bad_rows):
    """What the compiled and the NumPy conversion give: a block and a number of rows, or an error."""
    found = []
    compiled = converter._compiled
    for use in (compiled, None):
        converter._compiled = use
        try:
            found.append(converter.convert(Tables(table).open(converter.columns).read(0, bad_rows), bad_rows))
        except DataError as error:
            found.append(str(error))
        except ValueError as error:  # a default that is no valid id
            found.append(str(error))
    converter._compiled = compiled
    return found


def assert_same(a, b):
    a, b = a.in_order(), b.in_order()
    assert a.layout == b.layout
    np.testing.assert_array_equal(a.words, b.words)
    assert (a.tail is None) == (b.tail is None)
    if a.tail is not None:
        for mine, other in zip(a.tail, b.tail, strict=True):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)
    assert a.others.keys() == b.others.keys()
    for name, values in a.others.items():
        assert_same_bags(values, b.others[name])


def assert_same_bags(a, b):
    assert isinstance(a, Ragged)
    for field in ("values", "offsets", "weights"):
        mine, other = getattr(a, field), getattr(b, field)
        assert (mine is None) == (other is None)
        if mine is not None:
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)


@hypothesis.given(tables(), st.sampled_from(FEATURES), st.sampled_from(["error", "skip"]), st.booleans())
@hypothesis.settings(max_examples=400, deadline=None)
def test_compiled_and_numpy_agree(table, feature, bad_rows, with_weights):
    made = feature("c")
    converter = Converter(
        [made], [Label("label", at_least=0.5), Label("as it is", "label")], ["weight"] * with_weights, ["other"]
    )
    kinds = {field.name: field.type for field in table.schema}
    if any(made.refuse(column, kinds[column]) for column in made.columns):
        hypothesis.reject()
    try:
        converter.check(Tables(table).open(converter.columns))
    except DataError:
        hypothesis.reject()
    compiled, by_numpy = both(converter, table, bad_rows)
    if isinstance(by_numpy, str):
        assert compiled == by_numpy
        return
    assert compiled[1] == by_numpy[1]
    assert_same(compiled[0], by_numpy[0])


def test_good_data_never_needs_numpy(monkeypatch):
    table = pa.table(
        {
            "item": pa.array([1, 2, None]),
            "tags": pa.array(["a|b", None, "c"]),
            "words": pa.array(["x", "y", "x"]).dictionary_encode(),
            "seen": pa.array([[1, 2], [], None]),
            "price": pa.array(["1.5", "2", None]),
            "click": [0.0, 1.0, 1.0],
            "session": ["s", "t", "s"],
        }
    )
    features = [
        IdFeature("item", num_buckets=9, embedding_dim=2),
        IdFeature("tags", hash_bucket_size=9, embedding_dim=2, separator="|"),
        IdFeature("words", vocabulary=("x", "y"), embedding_dim=2),
        SequenceFeature("seen", num_buckets=9, embedding_dim=2, max_length=1),
        IdFeature("raw tags", column="tags", dynamic=ROWS, embedding_dim=2, separator="|", default="a"),
        SequenceFeature("raw seen", column="seen", dynamic=ROWS, embedding_dim=2, max_length=1),
        RawFeature("price", log=True),
        ComboFeature("both", cross=("item", "session"), hash_bucket_size=9, embedding_dim=2),
    ]
    converter = Converter(features, [Label("click")], ["click"], ["session"])
    reader = Tables(table).open(converter.columns)
    converter.check(reader)
    _, by_numpy = both(converter, table, "error")
    monkeypatch.setattr(Converter, "_by_numpy", lambda *_: pytest.fail("NumPy was asked"))
    made, skipped = converter.convert(reader.read(0, "error"), "error")
    assert skipped == 0
    assert_same(made, by_numpy[0])


RAW_COLUMNS = {
    "integers": pa.array([-1, None, 2**63 - 1, -(2**63), 0, 2**32]),
    "unsigned": pa.array([2**64 - 1, None, 2**63, 0, 1, 2**32 - 1], pa.uint64()),
    "bytes": pa.array([-128, 127, 0, None, 1, 2], pa.int8()),
    "strings": pa.array(["", "a", None, "exactly8", "longer than eight bytes", "ü"]),
    "coded": pa.array(["a", None, "b", "a", "", "b"]).dictionary_encode(),
    "numbers": pa.array([1.0, float("nan"), None, -3.0, 2.0**53, 0.0]),
    "marks": pa.array([True, None, False, True, True, False]),
}


@pytest.mark.parametrize("default", [None, 5])
def test_raw_ids_never_need_numpy_and_have_its_bits(monkeypatch, default):
    """More than 32 of them, so that the bits of their presence fill more than a word."""
    table = pa.table({f"{name} {i}": column for i in range(6) for name, column in RAW_COLUMNS.items()})
    features = [IdFeature(name, dynamic=ROWS, embedding_dim=2, default=default) for name in table.column_names]
    features.append(IdFeature("rows", column="bytes 0", num_buckets=200, unknown="empty", embedding_dim=2))
    converter = Converter(features, [], [], [])
    reader = Tables(table).open(converter.columns)
    converter.check(reader)
    _, by_numpy = both(converter, table, "error")
    monkeypatch.setattr(Converter, "_by_numpy", lambda *_: pytest.fail("NumPy was asked"))
    made, _ = converter.convert(reader.read(0, "error"), "error")
    assert_same(made, by_numpy[0])
    ids = {name: without_presence(values) for name, values in made.to_batch().ids.items()}
    fill = None if default is None else 5
    assert ids["integers 0"].tolist() == [-1, fill, 2**63 - 1, -(2**63), 0, 2**32]
    assert ids["unsigned 5"].tolist() == [-1, fill, -(2**63), 0, 1, 2**32 - 1]
    assert ids["bytes 3"].tolist() == [-128, 127, 0, fill, 1, 2]
    hashes = (
        hashing.hash_texts(pa.array(["a", "exactly8", "longer than eight bytes", "ü", "5"])).view(np.int64).tolist()
    )
    fill = None if default is None else hashes[-1]
    assert ids["strings 1"].tolist() == [fill, hashes[0], fill, *hashes[1:4]]
    padding = made.nothing(2).to_batch().ids
    assert without_presence(padding["integers 0"]).tolist() == [None, None]
    assert padding["rows"].tolist() == [-1, -1]


def test_a_feature_of_ones_own_goes_with_the_compiled_ones():
    class Doubled(Feature):
        name, part, columns, width = "doubled", "ids", ("item",), 2

        def refuse(self, column, kind):
            return None

        def convert(self, columns, problems):
            values = columns.column("item").to_numpy() * 2
            problems.add("item", np.flatnonzero(values == 6), lambda i: "three is refused")
            return values.astype(np.int32)

    table = pa.table({"item": [1, 2, 3, 4], "c": [1, -1, 2, 3], "label": [0, 0, 1, 1]})
    converter = Converter([Doubled(), IdFeature("c", num_buckets=9, embedding_dim=2)], [Label("label")], [], [])
    converter.check(Tables(table).open(converter.columns))
    compiled, by_numpy = both(converter, table, "skip")
    assert compiled[1] == by_numpy[1] == 2
    assert compiled[0].to_batch().ids["doubled"].tolist() == [2, 8]
    assert_same(compiled[0], by_numpy[0])
    compiled, by_numpy = both(converter, table, "error")
    assert compiled == by_numpy
    assert "row 1, column 'c': id -1 is outside 0 to 8" in compiled


def test_labels_that_a_loss_cannot_take_are_refused():
    label = CheckedLabel("label", checks=(LabelCheck("a loss", most=1.0),))
    converter = Converter([IdFeature("c", num_buckets=9, embedding_dim=2)], [label], [], [])
    table = pa.table({"c": [1, 2, 3], "label": [0, 2, 1]})
    converter.check(Tables(table).open(converter.columns))
    compiled, by_numpy = both(converter, table, "error")
    assert compiled == by_numpy
    assert "a loss takes numbers from 0 to 1 as labels, got 2" in compiled
    compiled, by_numpy = both(converter, table, "skip")
    assert compiled[1] == by_numpy[1] == 1
    assert_same(compiled[0], by_numpy[0])


@hypothesis.given(st.integers(0, 3000), st.lists(st.integers(0, 2**40), max_size=3))
@hypothesis.settings(max_examples=40, deadline=None)
def test_shuffles_agree(count, seeds):
    compiled = hashing.shuffled(count, *seeds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing.feed, "shuffled", lambda *_: None)
        np.testing.assert_array_equal(compiled, hashing.shuffled(count, *seeds))


@hypothesis.given(
    st.integers(0, 20), st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=3), st.data()
)
@hypothesis.settings(max_examples=60, deadline=None)
def test_bags_move_with_their_rows(rows, kinds, data):
    ids = {}
    for i, (has_weights, wide) in enumerate(kinds):
        lengths = data.draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
        offsets = np.cumsum([0, *lengths]).astype(np.int64)
        values = np.arange(offsets[-1], dtype=np.int64 if wide else np.int32) * (2**40 + 1 if wide else 1) + 100 * i
        ids[f"f{i}"] = Ragged(values, offsets, values.astype(np.float32) / 7 if has_weights else None)
    batch = Batch(ids={"single": np.arange(rows, dtype=np.int32), **ids})
    order = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=20)) if rows else [], np.int64)
    cut = sorted(data.draw(st.tuples(st.integers(0, len(order)), st.integers(0, len(order)))))
    for is_compiled in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_compiled:
                for name in ("bags", "take_tails"):
                    patch.setattr(f"sparrow.kernels.feed.{name}", lambda *_: None)
            block = Block.of(batch)
            moved = concatenate([block, block.take(order).cut(*cut), block.cut(rows // 2, rows)]).to_batch()
            taken = np.concatenate([np.arange(rows), order[slice(*cut)], np.arange(rows // 2, rows)])
            assert moved.ids["single"].tolist() == taken.tolist()
            for name, given in ids.items():
                assert_same_bags(moved.ids[name], take(given, taken))


def test_without_a_compiler_numpy_is_used(monkeypatch):
    monkeypatch.setattr("sparrow.kernels.native.host._load", lambda kind: "no C++ compiler was found")
    assert feed.library() is None
    assert feed.unavailable() == "no C++ compiler was found"
    converter = Converter([IdFeature("c", num_buckets=9, embedding_dim=2)], [], [], [])
    converter.check(Tables({"c": [1, 2]}).open(["c"]))
    assert converter._compiled is None
    assert converter.layout is not None
    assert feed.shuffled(3, 1) is None
