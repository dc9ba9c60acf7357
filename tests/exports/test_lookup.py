"""Pooled rows of bags: in pieces, so that memory does not grow with the ids of a request."""

import itertools
import tracemalloc

import numpy as np

from sparrow.kernels import Lookups
from sparrow.serving import lookup


def bags(lengths, rng):
    count = int(np.sum(lengths))
    gains = rng.normal(size=count).astype(np.float32)
    ids = rng.integers(0, 100, count).astype(np.int32)
    return Lookups(ids, None, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), gains, len(lengths))


def test_pieces_give_the_sums_of_each_bag(monkeypatch):
    rng = np.random.default_rng(0)
    table = rng.normal(size=(100, 3)).astype(np.float32)
    monkeypatch.setattr(lookup, "PIECE", 5)
    for _ in range(100):
        held = bags(rng.integers(0, 14, rng.integers(0, 20)), rng)
        rows = table[held.ids] * held.gains[:, None]
        wanted = [rows[begin:end].sum(0) for begin, end in itertools.pairwise(held.offsets)]
        np.testing.assert_allclose(lookup.pooled(table, held), np.reshape(wanted, (-1, 3)), atol=1e-5)


def test_a_bag_of_millions_takes_little_memory():
    rng = np.random.default_rng(0)
    table, held = np.ones((100, 64), np.float32), bags([2_000_000, 1], rng)
    tracemalloc.start()
    lookup.pooled(table, held)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20  # all rows at once are 512 MB
