"""Group keys: equal exactly when the keys are, the same everywhere, and evenly owned."""

import datetime

import numpy as np
import pytest

from sparrow.metrics.keys import encode, owner
from sparrow.metrics.order import dense_codes, float_codes, key_codes, order_by

DIFFERENT = [
    0,
    1,
    -1,
    2**63 - 1,
    -(2**63),
    2**63,
    2**64 - 1,
    2**64,
    -(2**63) - 1,
    0.5,
    float("inf"),
    "",
    "0",
    "1",
    b"",
    b"1",
]
DIFFERENT += [
    "1\0",
    b"1\0",
    "é",
    None,
    (),
    (1,),
    ("1",),
    ((1,),),
    (1, 1),
    ("1", "1"),
    ("11",),
    frozenset(),
    frozenset([1]),
]
DIFFERENT += [datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1)]


def pairs(groups):
    low, high = encode("GroupedAUC", groups, len(groups))
    return list(zip(low.tolist(), [0] * len(low) if high is None else high.tolist(), strict=True))


def test_different_keys_differ_and_equal_keys_are_equal():
    assert len(set(pairs(DIFFERENT))) == len(DIFFERENT)
    equal = [(1, 1.0, True, np.int8(1), np.float32(1)), ("a", np.str_("a")), ((1, "a"), (1.0, "a"))]
    for same in equal:
        assert len(set(pairs(list(same)))) == 1


def test_the_array_that_keys_come_in_does_not_matter():
    for dtype in (np.int8, np.uint16, np.int64, np.uint64, np.float32, object):
        assert pairs(np.array([3, 0, 120]).astype(dtype)) == pairs([3, 0, 120])
    for dtype in ("U3", object):
        assert pairs(np.array(["a", "bc"], dtype)) == pairs(["a", "bc"])
    assert pairs(np.array([True, False])) == pairs([1, 0])
    assert pairs(np.array([2**63, 1], np.uint64)) == pairs([2**63, 1])
    assert encode("m", np.arange(3), 3).high is None
    assert encode("m", [], 0).low.shape == (0,)


def test_keys_are_the_same_in_every_process_and_release():
    """States that were written yesterday, or elsewhere, still merge: these numbers may not change."""
    assert pairs(["user 1", ("a", 1)]) == [
        (0xA93AD245636E0CA1, 0x8DD7CF22AC4EB8B6),
        (0x6DFCF26D6E65669D, 0xC4A0AAC77D15A81C),
    ]
    low, high = encode("GroupedAUC", ["user 1", ("a", 1), 7], 3)
    assert owner(low, high, 1000).tolist() == [223, 436, 29]


@pytest.mark.parametrize("processes", [2, 3, 8])
def test_owners_are_even(processes):
    for keys in (np.arange(8000), np.arange(8000) * 1024, [f"user{k}" for k in range(8000)]):
        low, high = encode("GroupedAUC", keys, 8000)
        share = np.bincount(owner(low, high, processes), minlength=processes) / 8000
        assert share.min() > 0.8 / processes
        assert share.max() < 1.2 / processes


def test_keys_that_cannot_be_told_apart_are_refused():
    class Anonymous:
        pass

    with pytest.raises(TypeError, match=r"GroupedAUC.update: a group key is a Anonymous, whose repr does not show"):
        pairs([Anonymous()])
    with pytest.raises(ValueError, match="a group key is NaN; replace missing keys"):
        pairs([1.5, float("nan")])
    with pytest.raises(ValueError, match=r"groups have shape \(2, 2\); they must be \(2,\)"):
        encode("GroupedAUC", np.zeros((2, 2)), 2)


def test_order_is_numpys():
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, n, 500).astype(np.uint32) for n in (3, 1, 7))
    np.testing.assert_array_equal(order_by(a, b, c), np.lexsort((c, b, a)))
    wide = rng.integers(0, 2**64, 50, dtype=np.uint64)[rng.integers(0, 50, 500)]
    for words in ((wide,), (wide, a.astype(np.uint64))):
        together = list(zip(*reversed(words), strict=True))
        ranks = {key: rank for rank, key in enumerate(sorted(set(together)))}
        np.testing.assert_array_equal(dense_codes(*words), [ranks[key] for key in together])
    np.testing.assert_array_equal(
        np.unique(key_codes(wide), return_inverse=True)[1], np.unique(wide, return_inverse=True)[1]
    )


def test_float_codes_order_as_floats_do():
    values = np.array([-np.inf, -3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 1.5, 3e38, np.inf])
    for array in (values.astype(np.float32), values, np.append(values, [1e300, -1e300, 1 + 1e-15])):
        codes = float_codes(array).astype(np.int64)
        np.testing.assert_array_equal(codes[:, None] < codes, array[:, None] < array)
