"""Exact search: compiled code and XLA against NumPy's statement, blocks, threads, filters, ties and odd numbers."""

import numpy as np
import pytest

from sparrow.kernels.native.host import host_library
from sparrow.kernels.search import Excluded, RowsOnDevice, best_rows, on_device


def vectors(count, dim, seed):
    return np.random.default_rng(seed).integers(-3, 4, (count, dim)).astype(np.float32)  # exact sums, many ties


def excluding(lists):
    offsets = np.cumsum([0, *map(len, lists)])
    return Excluded(offsets, np.concatenate([np.sort(rows) for rows in lists]).astype(np.int64))


def test_the_compiled_search_is_in_use():
    assert host_library("search") is not None


@pytest.mark.parametrize(
    ("queries", "rows", "dim", "k"), [(1, 1, 1, 1), (3, 1000, 7, 10), (70, 999, 16, 100), (65, 40, 33, 64)]
)
@pytest.mark.parametrize("filters", ["none", "allowed", "excluded", "both"])
def test_the_rows_of_the_statement(queries, rows, dim, k, filters, monkeypatch):
    monkeypatch.setattr(on_device, "BLOCK", 300)
    random = np.random.default_rng(1)
    given, held = vectors(queries, dim, 2), vectors(rows, dim, 3)
    allowed = random.random(rows) < 0.5 if filters in ("allowed", "both") else None
    lists = [random.choice(rows, random.integers(0, rows // 2 + 1), replace=False) for _ in range(queries)]
    excluded = excluding(lists) if filters in ("excluded", "both") else None
    options = {"allowed": allowed, "excluded": excluded}
    scores = given @ held.T
    scores[:, [] if allowed is None else ~allowed] = -np.inf
    for own, rows_of in zip(scores, lists if excluded is not None else [], strict=False):
        own[rows_of] = -np.inf
    numbers = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    scores = np.take_along_axis(scores, numbers, axis=1)
    missing = ((0, 0), (0, k - scores.shape[1]))
    scores, numbers = (np.pad(part, missing, constant_values=-np.inf) for part in (scores, numbers.astype(float)))
    blocks = [held[: rows // 3], held[rows // 3 :]]
    for compiled in (None, False):
        ours = best_rows(given, blocks, k, compiled=compiled, **options)
        np.testing.assert_array_equal(ours[1], np.where(np.isinf(scores), -1, numbers))
        np.testing.assert_array_equal(ours[0], scores)
    device = RowsOnDevice(held).best(given, k, **options)
    np.testing.assert_array_equal(device[1], ours[1])
    np.testing.assert_array_equal(device[0], scores)


def test_threads_and_blocks_do_not_show():
    random = np.random.default_rng(4)
    given, held = random.standard_normal((20, 24), np.float32), random.standard_normal((50_000, 24), np.float32)
    one = best_rows(given, [held], 50, threads=1)
    for many in (best_rows(given, [held], 50, threads=5), best_rows(given, np.array_split(held, 7), 50, threads=2)):
        np.testing.assert_array_equal(one[0], many[0])
        np.testing.assert_array_equal(one[1], many[1])


@pytest.mark.parametrize("compiled", [True, False])
def test_nan_is_never_found_and_missing_rows_are_marked(compiled):
    held = np.array([[1.0], [np.nan], [2.0]], np.float32)
    scores, numbers = best_rows([[1.0]], [held], 3, compiled=compiled)
    assert numbers.tolist() == [[2, 0, -1]]
    assert scores.tolist() == [[2.0, 1.0, -np.inf]]
    assert [part.tolist() for part in RowsOnDevice(held).best(np.float32([[1.0]]), 3)] == [
        scores.tolist(),
        [[2, 0, -1]],
    ]


def test_dims_that_differ_are_one_sentence():
    with pytest.raises(ValueError, match=r"queries have 2 numbers and rows 3; they must be equal"):
        best_rows([[1.0, 2.0]], [[[1.0, 2.0, 3.0]]], 1)
