"""The contract of the backends of id maps: settings × sequences of batches, each against the oracle."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from sparrow.kernels import ids
from sparrow.kernels.ids import DISTANCE_LFU, LFU, NONE, Segment
from tests.kernels.ids.running import Pair, compiled, counts_by_segment

HALF = 2**63

SETTINGS = {
    "policies": [
        Segment(1, 33, 0),
        Segment(33, 60, 75, policy=LFU),
        Segment(64, 70, 75, policy=NONE),
        Segment(72, 99, 75, policy=DISTANCE_LFU),
    ],
    "expiring": [
        Segment(0, 30, 100, expire=2),
        Segment(30, 60, 100, policy=LFU, expire=2),
        Segment(60, 66, 100, policy=NONE, expire=3),
    ],
    "admission": [
        Segment(0, 20, 90, admit=2, waiting=10),
        Segment(20, 29, 90, admit=3, waiting=5, policy=LFU),
        Segment(29, 31, 90, admit=2, waiting=4, policy=NONE, expire=4),
        Segment(40, 49, 90, admit=2, waiting=0, policy=NONE),
        Segment(50, 60, 90, chance=HALF, seed=2**63 + 5),
    ],
    "several": [
        Segment(1, 11, 0, policy=LFU, expire=5),
        Segment(12, 12, 11),
        Segment(13, 30, 12, admit=2, waiting=9),
        Segment(32, 41, 50, policy=NONE, chance=HALF // 2 * 3),
        Segment(41, 45, 50, policy=NONE, expire=2, admit=2, waiting=3),
    ],
    "lots of more than one": [
        Segment(0, 450, 450),
        Segment(450, 700, 950, policy=LFU, expire=6),
        Segment(700, 900, 950, policy=DISTANCE_LFU, expire=8),
    ],
}


HAPPENS = {
    "policies": {"admitted", "evicted", "refused"},
    "expiring": {"admitted", "evicted", "expired", "refused"},
    "admission": {"admitted", "evicted", "refused", "forgotten"},
    "several": {"admitted", "evicted", "forgotten"},
    "lots of more than one": {"admitted", "evicted", "expired"},
}


def made(name):
    """Return the settings ``name``."""
    segments = SETTINGS[name]
    return ids.settings(segments, max(segment.end for segment in segments) + 5)


def batches(s, seed, count, size, keys):
    """Yield keys, segments and steps: skewed, with absent entries, some steps of several batches."""
    rng = np.random.default_rng(seed)
    step = 0
    empty = [number for number, segment in enumerate(s.segments) if segment.rows == 0]
    for _ in range(count):
        drawn = (keys ** rng.random(size)).astype(np.uint64) * np.uint64(0x0123456789ABCDEF)
        segments = rng.integers(-1, len(s.segments), size).astype(np.int32)
        segments[np.isin(segments, empty)] = -1
        yield drawn.tolist(), segments.tolist(), step
        step += int(rng.integers(0, 3))


class Contract:
    """The tests; a class that inherits gives the fixture ``backend``."""

    UNDONE_STEPS = 25

    @pytest.mark.parametrize("name", SETTINGS)
    def test_random_batches(self, backend, name):
        """Rows, lists, counters and the arrays of the state are the oracle's after every batch."""
        s = made(name)
        pair = Pair(backend, s)
        for keys, segments, step in batches(s, 1, 25, *((24, 150) if s.places < 200 else (150, 3000))):
            pair.assign(keys, segments, step)
            pair.find(keys[::-1], segments, step + 1)
        found = counts_by_segment(s, pair.state)
        assert not any(pair.oracle.short)
        seen = {name for name in ids.TOTALS if any(one[name] for one in found)}
        assert seen >= HAPPENS[name]

    @pytest.mark.parametrize("name", ["admission", "expiring", "policies"])
    def test_undone(self, backend, name):
        """A step that is taken back leaves everything as it was: the next ones follow the oracle."""
        s = made(name)
        pair = Pair(backend, s)
        for (keys, segments, step), (others, numbers, _) in zip(
            batches(s, 1, self.UNDONE_STEPS, 24, 150), batches(s, 2, self.UNDONE_STEPS, 24, 150), strict=True
        ):
            pair.try_and_undo(others, numbers, step)
            pair.find(others, numbers, step)
            pair.assign(keys, segments, step)
        assert not any(pair.oracle.short)
        assert any(one["evicted"] for one in counts_by_segment(s, pair.state))

    def test_full_index(self, backend):
        """An index whose last pair is in use: ids pass over buckets, and leave no trace when they go."""
        s = ids.settings([Segment(0, 60, 60, expire=1, policy=NONE)], 60)
        pair = Pair(backend, s, buckets=4)
        for step in range(0, 30, 2):
            pair.assign([step * 1000 + i for i in range(60)], [0] * 60, step)
            passed = np.asarray(pair.state.buckets)[:, 30]
            assert passed.max() < 60
            pair.find([step * 1000 + i for i in range(60)], [0] * 60, step + 1)
        assert counts_by_segment(s, pair.state)[0]["evicted"] == 14 * 60

    def test_extreme_ids(self, backend):
        """Every 64-bit number is an id like any other, also in two segments at once."""
        s = ids.settings([Segment(0, 8, 20, admit=2, waiting=8), Segment(8, 20, 20)], 20)
        pair = Pair(backend, s)
        keys = [0, 2**64 - 1, 2**63, 2**32, 2**32 - 1, 1]
        for step in range(3):
            pair.assign(keys * 2, [0] * 6 + [1] * 6, step)
        rows = pair.assign(keys * 2, [0] * 6 + [1] * 6, 3)
        assert len(set(rows.tolist())) == 12

    def test_too_few_rows(self, backend):
        """A step that needs more rows than there are changes nothing, and neither do later ones."""
        s = ids.settings([Segment(0, 4, 9), Segment(4, 9, 9, policy=LFU, expire=1, admit=2, waiting=3)], 9)
        pair = Pair(backend, s)
        pair.assign([1, 2, 3, 7, 7, 8], [0, 0, 0, 1, 1, 1], 0)
        before = jax.tree.map(np.array, pair.state)
        pair.assign([2, 11, 12, 13, 14, 7], [0, 0, 0, 0, 0, 1], 5)
        assert pair.oracle.short == [1, 0]
        for name, old, new in zip(before._fields, before, pair.state, strict=True):
            assert name == "short" or np.array_equal(old, new), name
        pair.assign([1, 2, 21, 7, 7, 9], [0, 0, 0, 1, 1, 1], 6)
        assert pair.oracle.short == [1, 0]

    def test_batches_of_one_step(self, backend):
        """A row that an earlier batch of the step has used is not given away."""
        s = ids.settings([Segment(0, 4, 4)], 4)
        pair = Pair(backend, s)
        for step in range(3):
            pair.assign([10 * step, 10 * step + 1], [0, 0], step)
            pair.assign([10 * step + 2, 10 * step + 3], [0, 0], step)
        pair.assign([98, 99], [0, 0], 2)
        assert pair.oracle.short == [2]

    def test_empty_batch(self, backend):
        """No entries, and only absent ones."""
        s = made("several")
        pair = Pair(backend, s)
        pair.assign([], [], 0)
        pair.assign([1, 2], [-1, -1], 0)
        pair.assign([1, 2], [0, 2], 1)
        pair.assign([], [], 2)
        pair.find([], [], 2)

    def test_far_apart(self, backend):
        """Steps and counts that share bins of a histogram leave in their exact order, ties by the hash of the id."""
        segments = [
            Segment(0, 300, 900),
            Segment(300, 600, 900, policy=LFU),
            Segment(600, 700, 900, policy=LFU, expire=90),
            Segment(700, 900, 900, policy=DISTANCE_LFU),
        ]
        s = ids.settings(segments, 900)
        pair = Pair(backend, s)
        rng = np.random.default_rng(0)
        steps = [0, 0, 1, 2000, 2001, 2002, 9000, 9005, 9100, 70_000, 70_500, 70_501]
        for number, step in enumerate(steps):
            keys = [1000 * number + i for i in range(20)] * 4 + [1000 * number + 20 + i for i in range(15)]
            pair.assign(keys, [0] * 20 + [1] * 20 + [2] * 20 + [3] * 20 + [0] * 10 + [1] * 5, step)
        counts = rng.integers(1, 60, s.places) ** rng.integers(1, 5, s.places)
        for held in pair.oracle.rows[1:]:
            for one in held.values():
                one.count = int(counts[one.place])
        lfu = np.isin(np.arange(s.places), [one.place for held in pair.oracle.rows[1:] for one in held.values()])
        pair.state = pair.state._replace(counts=jax.numpy.asarray(np.where(lfu, counts, 0).astype(np.int32)))
        for step in range(90_000, 90_012):
            keys = [1000 * step + i for i in range(105)]
            pair.assign(keys, [0] * 30 + [1] * 30 + [2] * 15 + [3] * 30, step)
        assert all(one["evicted"] > 60 for one in counts_by_segment(s, pair.state))

    def test_counts_end(self, backend):
        """A count that has reached its end stays there."""
        s = ids.settings([Segment(0, 4, 4, policy=LFU)], 4)
        pair = Pair(backend, s)
        pair.assign([1, 2], [0, 0], 0)
        pair.oracle.rows[0][1].count = 2**31 - 3
        pair.state = pair.state._replace(counts=pair.state.counts.at[0].set(2**31 - 3))
        pair.assign([1] * 5 + [2] * 3, [0] * 8, 1)
        assert pair.oracle.rows[0][1].count == 2**31 - 1

    def test_scan_and_twice(self, backend):
        """Under scan and jit, and a second time: the same bits."""
        s = made("several")
        given = list(batches(s, 11, 12, 24, 60))
        keys = np.stack([ids.words_of(np.array(one, np.uint64)) for one, _, _ in given])
        segments = np.array([one for _, one, _ in given], np.int32)
        steps = np.array([step for _, _, step in given], np.int32)

        @jax.jit
        def run(state):
            def body(state, batch):
                done = backend.assign(s, state, *batch)
                return done.state, done[1:4]

            return jax.lax.scan(body, state, (keys, segments, steps))

        first, second = run(ids.init(s)), run(ids.init(s))
        pair = Pair(backend, s)
        for one in given:
            pair.assign(*one)
        for held in (first, second):
            for name, got, want in zip(pair.state._fields, held[0], pair.state, strict=True):
                assert name == "buckets" or np.array_equal(got, want), name
        assert all(map(np.array_equal, jax.tree.leaves(first[1]), jax.tree.leaves(second[1])))

    def test_rebuilt_index(self, backend):
        """An index built from ids finds what the old one found, in another number of buckets too."""
        s = made("several")
        pair = Pair(backend, s)
        for one in batches(s, 5, 12, 24, 60):
            pair.assign(*one)
        for buckets in (s.buckets, 1 + -(-s.places // 15)):
            empty = np.zeros((buckets, 32), np.uint32)
            pair.state = jax.jit(lambda state: backend.indexed(s, state))(pair.state._replace(buckets=empty))
            for one in batches(s, 6, 6, 24, 60):
                pair.find(*one)
        for keys, segments, step in batches(s, 7, 12, 24, 60):
            pair.assign(keys, segments, step + 40)

    def test_donated(self, backend):
        """The state is changed in place."""
        s = ids.settings([Segment(1, 12, 0)], 12)
        _, assign = compiled(backend, s)
        state = ids.init(s)
        old = [array.unsafe_buffer_pointer() for array in (state.ids, state.last, state.buckets, state.free)]
        words = ids.words_of(np.arange(16, dtype=np.uint64) % 5)
        state = assign(state, words, np.zeros(16, np.int32), np.int32(0)).state
        assert [x.unsafe_buffer_pointer() for x in (state.ids, state.last, state.buckets, state.free)] == old
