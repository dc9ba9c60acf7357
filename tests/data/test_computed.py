"""Computed columns: each against plain Python, through the features that read them."""

import random

import numpy as np
import pyarrow as pa
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
    Pipeline,
    RawFeature,
    RawSequenceFeature,
    RegexReplace,
    SequenceFeature,
    Tables,
    register_function,
)
from sparrow.data.computed import registry
from sparrow.data.errors import DataError, Problems
from sparrow.data.features import registry as features

SEP = "\x1d"


def column(record, **columns):
    """The computed column of a table, checked to be without mistakes."""
    arrays = {name: value if isinstance(value, pa.Array) else pa.array(value) for name, value in columns.items()}
    batch = pa.RecordBatch.from_pydict(arrays)
    for name in record.columns:
        assert record.refuse(name, arrays[name].type) is None
    problems = Problems(batch.num_rows)
    made = record.compute(batch, problems).to_pylist()
    assert problems.rows is None, problems.first
    return made


def mistakes(record, **columns):
    batch = pa.RecordBatch.from_pydict(columns)
    problems = Problems(batch.num_rows)
    record.compute(batch, problems)
    return (problems.rows.tolist(), problems.first[2]) if problems.rows is not None else None


MAPS = ["ca:1\x1dcb:2"] * 5 + ["", None]
KEYS = ["ca\x1dcb", "ca", "ca\x1dcd", "cd", None, "ca", ""]
AS_MAPS = pa.array([{"ca": 1, "cb": 2}] * 5 + [{}, None], pa.map_(pa.string(), pa.int64()))
AS_LISTS = pa.array([["ca", "cb"], ["ca"], ["ca", "cd"], ["cd"], [], ["ca"], None])


@pytest.mark.parametrize(("maps", "keys"), [(MAPS, KEYS), (AS_MAPS, AS_LISTS), (MAPS, AS_LISTS), (AS_MAPS, KEYS)])
@pytest.mark.parametrize(
    ("combiner", "first"), [("sum", 3.0), ("mean", 1.5), ("min", 1.0), ("max", 2.0), ("count", 2.0)]
)
def test_lookup_combines_the_values_found(maps, keys, combiner, first):
    made = column(Lookup("m", "k", separator=SEP, combiner=combiner), m=maps, k=keys)
    assert made == [first, 1.0, 1.0, None, None, None, None]


def test_lookup_lists_the_values_found():
    assert column(Lookup("m", "k", separator=SEP, combiner=None), m=MAPS, k=KEYS) == [
        ["1", "2"],
        ["1"],
        ["1"],
        *[None] * 4,
    ]
    assert column(Lookup("m", "k", separator=SEP, combiner=None), m=AS_MAPS, k=KEYS)[0] == [1, 2]
    with_key = Lookup("m", "k", separator=SEP, combiner=None, with_key=True)
    assert column(with_key, m=MAPS, k=KEYS)[:2] == [["ca_1", "cb_2"], ["ca_1"]]
    assert column(with_key, m=AS_MAPS, k=KEYS)[:2] == [["ca_1", "cb_2"], ["ca_1"]]
    vectors = Lookup("m", "k", combiner=None, value_separator=",")
    assert column(vectors, m=["ca:1,2\x1dcb:3,4", "ca:1,2"], k=["cb", "x"]) == [["3", "4"], None]


def test_lookup_with_integers_as_keys():
    maps = pa.array([[(7, 0.5)], [(8, 2.0)]], pa.map_(pa.int64(), pa.float32()))
    assert column(Lookup("m", "k"), m=maps, k=[7, 9]) == [0.5, None]
    assert column(Lookup("m", "k"), m=["7:0.5", "8:2"], k=pa.array([7, 8])) == [0.5, 2.0]


@pytest.mark.parametrize("limit", [0, 1000], ids=["hashed", "compared"])
def test_random_lookups_equal_plain_python(limit, monkeypatch):
    monkeypatch.setattr("sparrow.data.computed.pairs.MOST_COMPARED", limit)
    rng = random.Random(5)
    words = [f"w{i}" for i in range(8)]
    maps = [{w: rng.randint(0, 9) for w in rng.sample(words, rng.randint(0, 5))} for _ in range(200)]
    keys = [[rng.choice(words) for _ in range(rng.randint(0, 3))] for _ in range(200)]
    found = [[m[k] for k in ks if k in m] for m, ks in zip(maps, keys, strict=True)]
    texts = ["|".join(f"{k}:{v}" for k, v in m.items()) for m in maps]
    made = column(Lookup("m", "k", separator="|", map_separator="|"), m=texts, k=["|".join(k) for k in keys])
    assert made == [float(sum(values)) if values else None for values in found]


def test_a_value_that_is_no_number_is_a_mistake_only_where_it_is_found():
    made = mistakes(Lookup("m", "k", map_separator="|"), m=["a:x|b:1", "a:x|b:1", "a|b:1"], k=["b", "a", "a"])
    assert made == ([False, True, True], "'x' is not a number")


NESTED = ["ca^ba:1,bb:2|cb^ba:3,bb:4"] * 3 + ["", None]


def test_match():
    keys = {"c": ["ca", "ca", "", "ca", None], "b": ["ba", "", "", "ba", None]}
    assert column(Match("m", pkey="c", skey="b"), m=NESTED, **keys) == [1.0, None, None, None, None]
    assert column(Match("m", skey="b"), m=NESTED, **keys)[:2] == [4.0, None]
    assert column(Match("m", pkey="c", combiner="max"), m=NESTED, **keys)[:2] == [2.0, 2.0]
    assert column(Match("m", combiner="count"), m=NESTED) == [4.0, 4.0, 4.0, None, None]
    listed = Match("m", pkey="c", combiner=None, show_pkey=True, show_skey=True)
    assert column(listed, m=NESTED, **keys)[:3] == [["ca_ba_1", "ca_bb_2"]] * 2 + [None]
    several = Match("m", pkey="c", skey="b", separator="|")
    assert column(several, m=NESTED[:1], c=["ca|cb"], b=["bb"]) == [6.0]


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("is_equal", 0.0),
        ("is_contain", 1.0),
        ("index_of", 1.0),
        ("query_common_ratio", 1.0),
        ("title_common_ratio", 0.5),
        ("proximity_min_dist", 1.0),
        ("proximity_max_dist", 1.0),
        ("proximity_avg_dist", 1.0),
        ("proximity_min_cover", 2.0),
    ],
)
def test_overlap(method, expected):
    assert column(Overlap("q", "t", method=method), q=[["b", "c"]], t=[["a", "b", "c", "d"]]) == [expected]


def test_overlap_of_several_terms():
    def of(method, query, title):
        return column(Overlap("q", "t", method=method, separator=" "), q=[query], t=[title])[0]

    assert of("proximity_min_cover", "x y", "x a a y x b y") == 2 + 0  # the part "y x"
    assert of("proximity_min_cover", "x z", "x a a y") == 0
    assert of("proximity_min_dist", "x y z", "x a y a a z") == 2
    assert of("proximity_max_dist", "x y z", "x a y a a z") == 5
    assert of("proximity_avg_dist", "x y z", "x a y a a z") == pytest.approx(10 / 3)
    assert of("proximity_min_dist", "x q", "a x") == 0
    assert of("proximity_min_dist", "q", "a x") == 3
    assert of("query_common_ratio", "a a b", "a c") == pytest.approx(2 / 3)
    assert of("is_contain", "a c", "a b c") == 0
    assert of("is_equal", "a b", "a b") == 1
    assert of("index_of", "c b", "a b c") == -1
    for method in ("query_common_ratio", "title_common_ratio", "is_contain", "is_equal"):
        assert column(Overlap("q", "t", method=method, separator=" "), q=["", None], t=["", None]) == [0.0, 0.0]


def test_shortest_cover_equals_trying_all_parts():
    rng = random.Random(2)
    for _ in range(100):
        title = [rng.choice("abcd") for _ in range(rng.randint(1, 9))]
        query = rng.sample("abcd", rng.randint(1, 3))
        parts = [
            j - i for i in range(len(title)) for j in range(i + 1, len(title) + 1) if set(query) <= set(title[i:j])
        ]
        made = column(Overlap("q", "t", method="proximity_min_cover"), q=[query], t=[title])
        assert made == [float(min(parts, default=0))], (query, title)


@pytest.mark.parametrize(
    ("q", "d", "expected"),
    [
        ("a:0.5|b:0.5", "d:0.5|b:0.5", 0.25),
        (["a:0.5", "b:0.5"], ["d:0.5", "b:0.5"], 0.25),
        (["a", "b", "c"], ["a", "b", "d"], 2.0),
        (["a", "b", "c"], "a|b|d", 2.0),
        ("a|b", "", None),
        (None, "a", None),
        ("a:2|a:3", "a:10", 50.0),
        ("a", "b", 0.0),
    ],
)
def test_kv_dot_product(q, d, expected):
    def typed(value):
        return pa.array([value], pa.list_(pa.string()) if isinstance(value, list) else pa.string())

    assert column(KvDotProduct("q", "d", separator="|"), q=typed(q), d=typed(d)) == [expected]


def test_kv_dot_product_of_maps():
    kind = pa.map_(pa.string(), pa.float32())
    q = pa.array([{"a": 0.5, "b": 0.5}, {"a": 1}, None], kind)
    assert column(KvDotProduct("q", "d"), q=q, d=pa.array([["a", "b"], [], ["a"]])) == [1.0, None, None]


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


def plain_distance(a, b):
    """The recurrence as written in books."""
    table = [[max(i, j) if not i or not j else 0 for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            swap = table[i - 1][j - 1] + (a[i - 1] != b[j - 1])
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, swap)
    return table[-1][-1]


def test_edit_distance_equals_the_table():
    rng = random.Random(1)
    words = ["".join(rng.choice("abcé") for _ in range(rng.randint(0, 8))) for _ in range(60)]
    made = column(EditDistance("a", "b"), a=words, b=words[::-1])
    assert made == [plain_distance(a, b) for a, b in zip(words, words[::-1], strict=True)]


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


@register_function("test_initials")
def initials(texts, times=1):
    return [None if text is None else text[0] * times for text in texts.to_pylist()]


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


def read(feature, **columns):
    return feature.convert(pa.RecordBatch.from_pydict(columns), Problems(len(next(iter(columns.values())))))


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
    (batch,) = Pipeline(Tables(table), features, batch_size=3)
    np.testing.assert_array_equal(batch.numbers["ctr"], np.array([[0.5], [0.5], [1.0]], np.float32))
    endless = Tables({**table, "show": [2.0, 0.0, 3.0]})
    with pytest.raises(DataError, match=r"row 1.*inf is not a finite number"):
        list(Pipeline(endless, features, batch_size=3))
    (kept,) = Pipeline(endless, features, batch_size=3, bad_rows="skip")
    assert kept.ids["item"].tolist() == [1, 3]
    with pytest.raises(DataError, match="'expr' reads numbers, strings or lists"):
        Pipeline(Tables({**table, "show": [{"a": 1}] * 3}), features, batch_size=3)


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
    assert all(feature.holds(name).words for name in feature.columns)


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


def test_a_normalizer_is_an_expression_of_x():
    root = RawFeature("x", expression="sqrt(max(x, 0))", mean=1.0, std=2.0)
    assert read(root, x=[9.0, None]).tolist() == [[1.0], [-0.5]]
    vector = RawFeature("x", dim=2, expression="x * x")
    assert read(vector, x=[[1.0, 3.0]]).tolist() == [[1.0, 9.0]]
    with pytest.raises(DataError, match=r"'log\(x\)' gives -inf for x = 0; change it"):
        read(RawFeature("x", expression="log(x)"), x=[0.0])
    (batch,) = Pipeline(Tables({"x": [4.0, 9.0]}), [RawFeature("x", expression="sqrt(x)")], batch_size=2)
    assert batch.numbers["x"].tolist() == [[2.0], [3.0]]


def test_a_computed_column_of_ones_own_must_be_registered():
    class Own(Computed):
        inputs = ("a",)

        def compute(self, columns, problems):
            return columns.column("a")

    feature = RawFeature("x", compute=Own())
    assert read(feature, a=[2.0]).tolist() == [[2.0]]
    with pytest.raises(ValueError, match="has no name that a config could hold; register it"):
        features.to_dict(feature)
