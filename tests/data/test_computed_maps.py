"""Computed columns that read maps: each against plain Python."""

import random

import pyarrow as pa
import pytest

from sparrow.data import (
    KvDotProduct,
    Lookup,
    Match,
)
from tests.data.computing import column, mistakes

SEP = "\x1d"
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
