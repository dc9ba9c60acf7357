"""Features that read computed columns; their records in a config."""

import numpy as np
import pytest

from sparrow.data import (
    BoolMask,
    Bucketize,
    Combine,
    Computed,
    Constant,
    Custom,
    Each,
    EditDistance,
    Expr,
    IdFeature,
    KvDotProduct,
    Lookup,
    Match,
    Overlap,
    RawFeature,
    RawSequenceFeature,
    RegexReplace,
    SequenceFeature,
    Tables,
)
from sparrow.data.computed import registry
from sparrow.data.errors import DataError
from sparrow.data.features import registry as features
from tests.data.computing import read
from tests.feed.pipelines import pipeline_of


def test_features_read_computed_columns():
    ratio = Expr("click / max(show, 1)")
    raw = RawFeature("ctr", compute=ratio, missing=-1.0)
    assert raw.columns == ("click", "show")
    assert read(raw, click=[1, None], show=[4, 4]).tolist() == [[0.25], [-1.0]]
    buckets = RawFeature("ctr", compute=ratio, boundaries=(0.2, 0.5), embedding_dim=4)
    assert read(buckets, click=[1, 3], show=[4, 4]).tolist() == [1, 2]
    found = IdFeature("n", compute=Lookup("m", "k", combiner=None), num_buckets=10, embedding_dim=4)
    assert read(found, m=["a:3", "a:3"], k=["a", "b"]).to_lists() == [[3], []]
    ages = SequenceFeature(
        "ages",
        compute=Each(Bucketize("t", boundaries=(5.0,)), sequences=("t",)),
        num_buckets=2,
        embedding_dim=4,
        max_length=2,
    )
    assert read(ages, t=[[1, 9, 9], [2]]).to_lists() == [[1, 1], [0]]
    gaps = RawSequenceFeature("gaps", compute=Each(Expr("now - t"), sequences=("t",)), max_length=3, std=2.0)
    made = read(gaps, now=[10, 10], t=[[4, 8], []])
    assert (made.values.tolist(), made.offsets.tolist()) == ([[3.0], [1.0]], [0, 2, 2])


def test_a_pipeline_computes_columns_and_explains_mistakes():
    features = [
        IdFeature("item", num_buckets=10, embedding_dim=4),
        RawFeature("ctr", compute=Expr("click / show")),
    ]
    table = {"item": [1, 2, 3], "click": [1.0, 2.0, 3.0], "show": [2.0, 4.0, 3.0]}
    (batch,) = pipeline_of(Tables(table), features, batch_size=3)
    np.testing.assert_array_equal(batch.numbers["ctr"], np.array([[0.5], [0.5], [1.0]], np.float32))
    endless = Tables({**table, "show": [2.0, 0.0, 3.0]})
    with pytest.raises(DataError, match=r"row 1.*inf is not a finite number"):
        list(pipeline_of(endless, features, batch_size=3))
    (kept,) = pipeline_of(endless, features, batch_size=3, bad_rows="skip")
    assert kept.ids["item"].tolist() == [1, 3]
    with pytest.raises(DataError, match="'expr' reads numbers, strings or lists"):
        pipeline_of(Tables({**table, "show": [{"a": 1}] * 3}), features, batch_size=3)


def test_a_normalizer_is_an_expression_of_x():
    root = RawFeature("x", expression="sqrt(max(x, 0))", mean=1.0, std=2.0)
    assert read(root, x=[9.0, None]).tolist() == [[1.0], [-0.5]]
    vector = RawFeature("x", dim=2, expression="x * x")
    assert read(vector, x=[[1.0, 3.0]]).tolist() == [[1.0, 9.0]]
    with pytest.raises(DataError, match=r"'log\(x\)' gives -inf for x = 0; change it"):
        read(RawFeature("x", expression="log(x)"), x=[0.0])
    (batch,) = pipeline_of(Tables({"x": [4.0, 9.0]}), [RawFeature("x", expression="sqrt(x)")], batch_size=2)
    assert batch.numbers["x"].tolist() == [[2.0], [3.0]]


RECORDS = [
    Expr("a + b", variables={"b": Constant(2)}, separator="|"),
    Lookup("m", Bucketize("k", boundaries=(1.0, 2.0)), combiner="max"),
    Match("m", pkey="a", skey=RegexReplace("b", pattern="x", replacement="y")),
    Overlap("q", "t", method="is_equal"),
    KvDotProduct("q", "d", separator="|"),
    Each(EditDistance("a", "b"), sequences=("b",), separator=";"),
    BoolMask("a", "b"),
    Combine("a", values={"x": 1.5, "y": 2.0}, combiner="max", separator="|"),
    Expr("dot(a, b)", fill=0.5),
    Custom("test_initials", ("a",), options={"times": 3}),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: registry.name_of(record))
def test_records_survive_a_config(record):
    assert registry.from_yaml(registry.to_yaml(record)) == record
    feature = IdFeature("x", compute=record, hash_bucket_size=10, embedding_dim=4)
    assert features.from_json(features.to_json(feature)) == feature
    assert all(feature.holds(name) for name in feature.columns)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Expr("1 + 2"), "reads no column"),
        (lambda: Expr("a", variables={"b": "c"}), "has no variable 'b'"),
        (lambda: Lookup("", "k"), "Lookup.map must be a string that is not empty"),
        (lambda: Lookup("m", "k", combiner="median"), "Lookup.combiner must be one of"),
        (lambda: Lookup("m", "k", with_key=True), "need a combiner of null"),
        (lambda: Match("m", show_pkey=True), "need a combiner of null"),
        (lambda: Overlap("q", "t", method="common"), "Overlap.method must be one of"),
        (lambda: Bucketize("a", boundaries=(2.0, 1.0)), "Bucketize.boundaries must increase"),
        (lambda: Combine("a", values={}), "Combine.values must have at least one word"),
        (lambda: Combine("a", combiner="median"), "Combine.combiner must be one of"),
        (lambda: Expr("a", fill="x"), "Expr.fill must be a finite number"),
        (lambda: Each(Expr("a"), sequences=("b",)), "names 'b', which is not read"),
        (lambda: RegexReplace("a", pattern="(", replacement=""), "cannot be read"),
        (lambda: RawFeature("x", column="a", compute=Expr("a")), "column and compute exclude each other"),
        (lambda: RawFeature("x", expression="y + 1"), "the one variable x"),
        (lambda: RawFeature("x", expression="x", log=True), "two transforms"),
        (lambda: RawFeature("x", expression="x +"), "expected a number"),
    ],
)
def test_wrong_records(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_computed_column_of_ones_own_must_be_registered():
    class Own(Computed):
        inputs = ("a",)

        def compute(self, columns, problems):
            return columns.column("a")

    feature = RawFeature("x", compute=Own())
    assert read(feature, a=[2.0]).tolist() == [[2.0]]
    with pytest.raises(ValueError, match="has no name that a config could hold; register it"):
        features.to_dict(feature)
