"""Areas of groups, compiled, beside their statement in NumPy."""

import numpy as np
import pytest

from sparrow import metrics
from sparrow.kernels import areas
from sparrow.metrics import exact, grouped

ROWS = 70_000
rng = np.random.default_rng(7)
scores = np.ones(ROWS, np.float32)
HASHED = rng.integers(-(2**63), 2**63 - 1, 900)
KEYS = {
    "few": rng.integers(-3, 4, ROWS),  # about zero
    "many": rng.integers(0, 50_000, ROWS),
    "one": np.full(ROWS, -5),
    "hashed": HASHED[rng.integers(0, 900, ROWS)],
    "skewed": np.where(rng.random(ROWS) < 0.9, 3, rng.integers(0, 2**40, ROWS)),
    "large": rng.integers(0, 40, ROWS).astype(np.uint64) + np.uint64(2**63 - 20),
}


def state(metric, keys, weights, step):
    """The state after chunks of ``step`` rows; the first ones have no weights."""
    scores = rng.choice(np.float32([-np.inf, -1.5, -0.0, 0.0, 0.25, 1e-40, 3.5, np.inf]), ROWS)
    scores = np.where(rng.random(ROWS) < 0.5, scores, rng.standard_normal(ROWS).astype(np.float32))
    labels, made = rng.random(ROWS) < 0.3, metric.init()
    for begin in range(0, ROWS, step):
        rows = slice(begin, begin + step)
        given = weights[rows] if weights is not None and begin else None
        made = metric.update(made, scores[rows], labels[rows], given, keys[rows])
    return made


def in_parts(metric, given, monkeypatch, compiled):
    with monkeypatch.context() as patch:
        if not compiled:
            patch.setattr(grouped, "group_areas", lambda *_: None)
        return metric._in_parts(given.chunks)


@pytest.mark.parametrize("weights", [None, "halves", "random"])
@pytest.mark.parametrize(("name", "average"), list(zip(KEYS, ["uniform", "impressions", "clicks"] * 2, strict=True)))
def test_compiled_areas_are_those_of_numpy(name, average, weights, monkeypatch):
    """Bit by bit, also the order of the groups; random weights are added in another order within a score."""
    given = {None: None, "halves": rng.integers(1, 9, ROWS) / 2, "random": rng.random(ROWS) + 0.01}[weights]
    metric = metrics.GroupedAUC(average)
    rows = state(metric, KEYS[name], None if given is None else given.astype(np.float32), step=23_000)
    compiled, plain = (in_parts(metric, rows, monkeypatch, compiled) for compiled in (True, False))
    assert (
        areas.group_areas(rows.chunks, "uniform", 16, 2) is not None or name == "large"
    )  # keys of two words are NumPy's
    assert len(compiled) == len(plain) == grouped.PARTS
    for own, other in zip(compiled, plain, strict=True):
        for a, b in zip(own, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12 if weights == "random" else 0)


def test_any_number_of_threads_gives_the_same_areas():
    rows = state(metrics.GroupedAUC(), KEYS["many"], rng.random(ROWS).astype(np.float32), step=10_000)
    alone, several = (areas.group_areas(rows.chunks, "uniform", 16, threads) for threads in (1, 5))
    for own, other in zip(alone, several, strict=True):
        for a, b in zip(own, other, strict=True):
            np.testing.assert_array_equal(a, b)
    assert sum(len(part[0]) for part in alone) == len(np.unique(KEYS["many"]))


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_compiled_rows_are_those_of_numpy(share, monkeypatch):
    """Rows with faults of every kind, and of weight 0, whose other values do not count."""
    scores = rng.choice(np.float32([np.nan, np.inf, -0.0, 0.5]), ROWS)
    labels = rng.choice(np.float32([0, 1, 1, 0, 2, np.nan]), ROWS)
    weights = np.where(rng.random(ROWS) < share, rng.choice(np.float32([1.5, 2, np.nan, -1, np.inf]), ROWS), 0)
    for given in (weights.astype(np.float32), None):
        for metric, keys in ((metrics.GroupedAUC(), KEYS["hashed"]), (metrics.ExactAUC(), None)):
            assert areas.binary_rows(scores, labels, given, keys) is not None
            compiled = metric.update(metric.init(), scores, labels, given, keys)
            with monkeypatch.context() as patch:
                patch.setattr(exact, "binary_rows", lambda *_: None)
                plain = metric.update(metric.init(), scores, labels, given, keys)
            np.testing.assert_equal(compiled.faults, plain.faults)
            (a,), (b,) = compiled.chunks, plain.chunks
            assert {name: column.dtype for name, column in a.items()} == {name: b[name].dtype for name in b}
            for name in b:
                np.testing.assert_array_equal(a[name], b[name])


def test_rows_that_compiled_code_does_not_take():
    given = {"predictions": scores, "labels": scores, "weights": scores, "keys": KEYS["few"]}
    assert areas.binary_rows(**given) is not None
    for name in given:
        assert areas.binary_rows(**given | {name: given[name].astype(np.float16)}) is None
        assert areas.binary_rows(**given | {name: given[name][1:]}) is None
        assert areas.binary_rows(**given | {name: given[name].tolist()}) is None
    assert areas.binary_rows(scores[:9], scores[:9], None, None) is None


@pytest.mark.parametrize("column", ["prediction", "weight"])
def test_other_types_are_left_to_numpy(column):
    rows = {name: np.zeros(4, dtype) for name, dtype in areas.COLUMNS.items()}
    assert areas.group_areas([rows], "clicks", 4, 1) is not None
    assert areas.group_areas([rows | {column: np.zeros(4)}], "clicks", 4, 1) is None
    assert areas.group_areas([rows | {"key_high": np.zeros(4, np.uint64)}], "clicks", 4, 1) is None
