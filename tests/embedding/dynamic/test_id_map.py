"""The id map, compiled and in Python, against each other, a plain model, and a twin that saw only the steps taken."""

from __future__ import annotations

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow.embedding.dynamic.compiled import CompiledIdMap
from sparrow.embedding.dynamic.id_map import POLICIES, IdMap, Settings, TooFewRows, id_map
from sparrow.embedding.dynamic.plain import PlainIdMap
from sparrow.embedding.dynamic.record import Dynamic
from sparrow.kernels import feed

NONE, LRU, LFU = POLICIES.values()
EXTREMES = [0, 1, 2**63, 2**64 - 1]


def compiled(of: Settings) -> IdMap:
    library = feed.library()
    assert library is not None
    return CompiledIdMap(of, library)


MAPS = pytest.mark.parametrize("make", [compiled, PlainIdMap])


def ids_of(*ids: int) -> np.ndarray:
    return np.array(ids, np.uint64)


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


all_settings = st.builds(
    Settings,
    capacity=st.integers(1, 12),
    room=st.integers(1, 8),
    admit=st.integers(1, 3),
    chance=st.sampled_from([0, 0, 2**63]),
    policy=st.sampled_from(list(POLICIES.values())),
    expire=st.sampled_from([0, 0, 1, 3]),
    seed=st.integers(0, 5),
).map(lambda of: of._replace(room=of.room if of.admit > 1 else 0, chance=of.chance if of.admit == 1 else 0))
ids = st.one_of(st.integers(0, 30), st.sampled_from(EXTREMES))
batches = st.lists(st.lists(ids, max_size=10), min_size=1, max_size=25)


class Model:
    """The promises, stated by themselves: who holds a row, and how often ids were seen."""

    def __init__(self, of: Settings) -> None:
        self.of = of
        self.holder: dict[int, int] = {}
        self.seen: collections.Counter[int] = collections.Counter()

    def check(self, keys: list[int], rows: list[int], new_rows: list[int], new_ids: list[int]) -> None:
        before = dict(self.holder)
        self.seen.update(keys)
        assert len(set(new_rows)) == len(new_rows), "a row starts anew twice in one batch"
        self.holder.update(zip(new_rows, new_ids, strict=True))
        assert len(set(self.holder.values())) == len(self.holder), "an id has two rows"
        for key, row in zip(keys, rows, strict=True):
            if row >= 0:
                assert self.holder[row] == key, "two ids share a row"
                assert 0 <= row < self.of.capacity
                assert self.seen[key] >= self.of.admit, "admitted too early"
        here = set(keys)
        for row, key in before.items():
            assert key not in here or self.holder[row] == key, "an id of the batch lost its row"
        by_id = dict(zip(keys, rows, strict=True))
        assert all(by_id[key] == row for key, row in zip(keys, rows, strict=True)), "an id has one row in a batch"


@given(of=all_settings, given_batches=batches, accumulate=st.integers(1, 2))
@settings(max_examples=300, deadline=None)
def test_both_maps_agree_and_keep_their_promises(of, given_batches, accumulate):
    fast, slow, model = compiled(of), PlainIdMap(of), Model(of)
    for number, keys in enumerate(given_batches):
        step, before = number // accumulate, fast.state()
        try:
            made = fast.train(ids_of(*keys), step)
        except TooFewRows:
            with pytest.raises(TooFewRows):
                slow.train(ids_of(*keys), step)
            assert len({*keys} | {*map(int, before["ids"])}) > of.capacity
            assert of.policy != NONE
            assert same(fast.state(), before), "a batch that is refused changes nothing"
            assert same(slow.state(), before)
            return
        for a, b in zip(made, slow.train(ids_of(*keys), step), strict=True):
            np.testing.assert_array_equal(a, b)
        model.check(keys, made.rows.tolist(), made.new_rows.tolist(), made.new_ids.tolist())
        np.testing.assert_array_equal(fast.find(ids_of(*keys), step), made.rows)
        every = ids_of(*range(31), *EXTREMES)
        np.testing.assert_array_equal(fast.find(every, step + 1), slow.find(every, step + 1))
        assert same(fast.state(), slow.state())
        assert fast.numbers["waiting"] <= of.room


@MAPS
@given(of=all_settings, given_batches=batches, lags=st.lists(st.integers(0, 4), min_size=25, max_size=25))
@settings(max_examples=100, deadline=None)
def test_a_checkpoint_is_a_twin_that_saw_only_the_steps_taken(make, of, given_batches, lags):
    ahead, twin, taken, rows = make(of), make(of), 0, []
    try:
        for step, keys in enumerate(given_batches):
            rows.append(ahead.train(ids_of(*keys), step).rows)
            while taken <= step - lags[step]:
                twin.train(ids_of(*given_batches[taken]), taken)
                taken += 1
            ahead.forget(taken)
            now = ahead.state()
            ahead.back(taken)
            assert same(ahead.state(), twin.state())
            resumed = make(of)
            resumed.restore(ahead.state())
            for left in range(taken, step + 1):
                np.testing.assert_array_equal(resumed.train(ids_of(*given_batches[left]), left).rows, rows[left])
            assert same(resumed.state(), now)
            ahead.forward()
            assert same(ahead.state(), now)
    except TooFewRows:
        pass


@MAPS
def test_stays_where_it_went_back_to(make):
    gone, twin = make(Settings(2)), make(Settings(2))
    twin.train(ids_of(5, 6), 0)
    for step, key in enumerate([(5, 6), (7,), (8,)]):
        gone.train(ids_of(*key), step)
    gone.back(1)
    gone.drop()
    gone.forward()
    assert same(gone.state(), twin.state())


@MAPS
def test_evicts_in_row_order_the_least_recently_used(make):
    made = make(Settings(4))
    made.train(ids_of(10, 11, 12, 13), 0)
    made.train(ids_of(11), 1)
    assert made.train(ids_of(20, 21), 2).new_rows.tolist() == [0, 2]  # row 1 was used since
    assert made.find(ids_of(10, 11, 12, 13), 2).tolist() == [-1, 1, -1, 3]


@MAPS
def test_evicts_the_least_frequently_used(make):
    made = make(Settings(3, policy=LFU))
    made.train(ids_of(1, 2, 3, 1, 1, 1, 3, 3, 3, 3), 0)
    assert made.train(ids_of(9), 1).new_ids.tolist() == [9]
    assert made.find(ids_of(1, 2, 3), 1).tolist() == [0, -1, 2]


@MAPS
def test_without_eviction_new_ids_stay_unknown_and_are_counted(make):
    made = make(Settings(2, policy=NONE))
    assert made.train(ids_of(1, 2, 3, 3), 0).rows.tolist() == [0, 1, -1, -1]
    assert made.numbers["refused"] == 2


@MAPS
def test_ids_expire_after_steps_without_use(make):
    made = make(Settings(2, policy=NONE, expire=2))
    made.train(ids_of(1, 2), 0)
    assert made.train(ids_of(3), 2).rows.tolist() == [-1]  # 2 steps without use are allowed
    assert made.find(ids_of(1), 2).tolist() == [0]
    assert made.find(ids_of(1), 3).tolist() == [-1]
    assert made.train(ids_of(2), 3).new_rows.tolist() == [1]  # comes back too late: its row starts anew
    assert made.train(ids_of(3), 3).rows.tolist() == [0]
    assert made.numbers["expired"] == 1


@MAPS
def test_waiting_ids_are_bounded(make):
    made = make(Settings(4, room=2, admit=2))
    made.train(ids_of(1, 2, 3), 0)  # 1 is forgotten
    assert made.train(ids_of(3, 1), 1).rows.tolist() == [0, -1]  # 1 comes back, and 2 is forgotten
    assert (made.numbers["waiting"], made.numbers["forgotten"]) == (1, 2)


@MAPS
def test_admits_by_chance(make):
    made = make(Settings.of(Dynamic(admit=0.25, evict="none", unknown="zeros"), 100_000))
    rows = made.train(np.arange(4000, dtype=np.uint64), 0).rows
    assert 850 < np.count_nonzero(rows >= 0) < 1150
    again = made.train(np.arange(4000, dtype=np.uint64), 1).rows  # another chance
    assert np.count_nonzero(again >= 0) > 1500


@MAPS
def test_a_larger_map_goes_on(make):
    small, large = make(Settings(2)), make(Settings(3))
    small.train(ids_of(1, 2), 0)
    large.restore(small.state())
    assert large.train(ids_of(3, 1), 1).rows.tolist() == [2, 0]


@MAPS
def test_an_empty_batch_is_a_batch(make):
    made = make(Settings(1))
    assert made.train(ids_of(), 0).rows.tolist() == []
    assert made.train(ids_of(2**64 - 1, 2**64 - 1), 1).rows.tolist() == [0, 0]


def test_the_map_is_compiled_where_it_can_be(monkeypatch):
    assert isinstance(id_map(Settings(1)), CompiledIdMap)
    monkeypatch.setattr(feed, "library", lambda: None)
    assert isinstance(id_map(Settings(1)), PlainIdMap)
