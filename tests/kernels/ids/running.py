"""A map beside its oracle: both get the same batches, and everything visible is compared."""

from __future__ import annotations

import functools

import jax
import numpy as np

from sparrow.kernels import ids
from sparrow.kernels.ids.types import TOTALS
from tests.kernels.ids.oracle import Oracle


def counts_by_segment(s, state):
    """Return counts by segment: used rows, waiting ids, those of `TOTALS`, missing rows. Waits for the device."""
    pools, totals, short = (np.asarray(x) for x in (state.pools, state.totals, state.short))
    result = []
    for number, (one, (begin, end)) in enumerate(zip(s.segments, s.waiting, strict=True)):
        used = {"used": one.rows - int(pools[number, 0])}
        used["waiting"] = end - begin - int(pools[len(s.segments) + number, 0])
        summed = {name: int(totals[number, i, 0]) + (int(totals[number, i, 1]) << 32) for i, name in enumerate(TOTALS)}
        result.append({**used, **summed, "short": int(short[number])})
    return result


@functools.cache
def compiled(backend, s):
    """Return `find` and `assign` of ``backend``, compiled; the state of assign is donated."""
    find = jax.jit(lambda state, keys, segments, step: backend.find(s, state, keys, segments, step))
    assign = jax.jit(
        lambda state, keys, segments, step: backend.assign(s, state, keys, segments, step), donate_argnums=0
    )
    return find, assign


def with_buckets(s, state, buckets):
    """Return an empty ``state`` with an index of another size."""
    from sparrow.kernels.ids.index import empty

    return state if buckets is None else state._replace(buckets=empty(buckets))


@functools.cache
def undoing(backend, s):
    """Return a function that undoes the calls of a step, the last one first; the state is donated."""

    def back(state, calls, when):
        for words, undo in reversed(calls):
            state = backend.undone(s, state, undo, words, when)
        return state

    return jax.jit(back, donate_argnums=0)


class Pair:
    """A map and its oracle."""

    def __init__(self, backend, s, buckets=None):
        self.backend, self.s = backend, s
        self.state = with_buckets(s, ids.init(s), buckets)
        self.oracle = Oracle(s)

    def assign(self, keys, segments, step):
        """Give both the same batch, and compare."""
        words = ids.words_of(np.array(keys, np.uint64))
        _, assign = compiled(self.backend, self.s)
        self.state, rows, fresh, gone, _ = assign(self.state, words, np.array(segments, np.int32), np.int32(step))
        want_rows, want_fresh, want_gone = self.oracle.assign(list(keys), list(segments), step)
        assert np.asarray(rows).tolist() == want_rows
        self.compare_changes(fresh, want_fresh)
        self.compare_changes(gone, want_gone)
        self.compare_state()
        return np.asarray(rows)

    def try_and_undo(self, keys, segments, step):
        """Give the map a batch, then another one of the same step, and take both back."""
        _, assign = compiled(self.backend, self.s)
        words = ids.words_of(np.array(keys, np.uint64))
        calls = []
        for given in (words, np.roll(words, 5, axis=0)):
            self.state, *_, undo = assign(self.state, given, np.array(segments, np.int32), np.int32(step))
            calls.append((given, undo))
        before = jax.tree.map(np.array, self.state)
        back = undoing(self.backend, self.s)
        self.state = back(self.state, calls, np.array(False))
        assert all(map(np.array_equal, before, self.state))
        self.state = back(self.state, calls, np.array(True))
        if any(np.asarray(self.state.short)):
            self.state = self.state._replace(short=jax.numpy.zeros_like(self.state.short))
        self.compare_state()

    def find(self, keys, segments, step):
        """Compare the rows of ``keys``."""
        find, _ = compiled(self.backend, self.s)
        rows = find(self.state, ids.words_of(np.array(keys, np.uint64)), np.array(segments, np.int32), np.int32(step))
        assert np.asarray(rows).tolist() == self.oracle.find(list(keys), list(segments), step)

    def compare_changes(self, changed, wanted):
        count = int(changed.ends[-1])
        flat = [pair for segment in wanted for pair in segment]
        assert np.asarray(changed.ends).tolist() == np.cumsum([len(segment) for segment in wanted]).tolist()
        assert np.asarray(changed.rows)[:count].tolist() == [row for row, _ in flat]
        assert ids.numbers_of(np.asarray(changed.ids))[:count].tolist() == [key for _, key in flat]
        assert (np.asarray(changed.rows)[count:] == self.s.rows).all()
        assert (np.asarray(changed.ids)[count:] == 0).all()

    def compare_state(self):
        state = jax.tree.map(np.asarray, self.state)
        s, oracle = self.s, self.oracle
        keys, last, count = np.zeros(s.places, np.uint64), np.full(s.places, -1), np.zeros(s.places, int)
        for held in (*oracle.rows, *oracle.waiting):
            for key, one in held.items():
                keys[one.place], last[one.place], count[one.place] = key, one.last, one.count
        assert ids.numbers_of(state.ids).tolist() == keys.tolist()
        assert state.last.tolist() == last.tolist()
        assert state.counts.tolist() == count.tolist()
        for number, (begin, _) in enumerate(s.pools):
            free = state.pools[number, 0]
            assert state.free[begin : begin + free].tolist() == oracle.free[number]
        assert state.pools[: len(s.segments), 1].tolist() == oracle.quiet
        assert state.short.tolist() == oracle.short
        for number, totals in enumerate(oracle.totals):
            assert ids.numbers_of(state.totals[number]).tolist() == [totals[name] for name in TOTALS]
