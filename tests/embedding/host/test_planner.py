"""The plan of a cache: C++ and NumPy give the same one, and rows are where the plan has them."""

import mmap

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparrow as sp
from sparrow.embedding.host.compiled import CompiledPlanner, gather, scatter
from sparrow.embedding.host.plain import PlainPlanner
from sparrow.embedding.stacking import cache_of, stack_tables
from sparrow.kernels.feed import library
from tests.embedding.host.loops import zipf


def stacks(rows, caches):
    specs = [
        sp.TableSpec(
            name=f"t{i}", vocabulary_size=n, embedding_dim=2, optimizer=sp.rules.SGD(0.1), memory=sp.HostMemory(cache=c)
        )
        for i, (n, c) in enumerate(zip(rows, caches, strict=True))
    ]
    (logical,) = stack_tables(specs)
    return logical, cache_of(logical)


def planners(rows, caches):
    made = [PlainPlanner(*stacks(rows, caches))]
    if library() is not None:
        made.append(CompiledPlanner(*stacks(rows, caches), library()))
    return made


def drive(planners, steps, lookahead, tables):
    """Plan all steps; compare the plans, and check each against a model of the device."""
    model = np.full(int(planners[0].first_slots[-1]), -1, np.int64)  # by slot: the row
    home = {}  # by row: the step before which it left
    early = 0
    for number in range(len(steps) + lookahead):
        if number < len(steps):
            for plan in planners:
                plan.begin(number)
                for span in ([range(tables)], [range(1), range(1, tables)])[number % 2 and tables > 1]:
                    plan.see(steps[number], span)
        if number < lookahead:
            continue
        step = number - lookahead
        moves = [[plan.admit(table) for table in range(tables)] for plan in planners]
        for own in moves[1:]:
            for a, b in zip(moves[0], own, strict=True):
                for x, y in zip(a, b, strict=True):
                    np.testing.assert_array_equal(x, y)
        for table, of_table in enumerate(moves[0]):
            assert (model[of_table.out_slots] == of_table.out_rows).all()
            model[of_table.out_slots] = -1
            assert (model[of_table.in_slots] == -1).all()
            expected = max((home.get(row, -1) for row in of_table.in_rows.tolist()), default=-1)
            assert of_table.after == expected
            model[of_table.in_slots] = of_table.in_rows
            home |= dict.fromkeys(of_table.out_rows.tolist(), step)
            begin, end = planners[0].first_slots[table : table + 2]
            assert ((of_table.in_slots >= begin) & (of_table.in_slots < end)).all()
            early += of_table.early
        rows = steps[step]
        valid = (rows >= 0) & (rows < planners[0].first_rows[-1])
        for plan in planners:
            slots = rows.copy()
            plan.slots(slots)
            assert (model[slots[valid]] == rows[valid]).all()
            assert (slots[~valid] == len(model)).all()
            plan.end()
    return early


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 5), st.lists(st.integers(4, 40), min_size=1, max_size=3))
def test_plans_are_equal_and_rows_are_where_they_say(seed, lookahead, rows):
    generator = np.random.default_rng(seed)
    caches = [int(generator.integers(4, max(5, n))) for n in rows]
    starts = np.concatenate([[0], np.cumsum(rows)])
    steps = []
    for _ in range(25):
        own = [
            start + generator.integers(0, n, generator.integers(0, 5)) for start, n in zip(starts, rows, strict=False)
        ]
        ids = np.concatenate([*own, [starts[-1]]]).astype(np.int32)  # one of them is padding
        steps.append(generator.permutation(ids))
    drive(planners(rows, caches), steps, lookahead, len(rows))


def test_rows_leave_early_where_the_window_does_not_fit():
    generator = np.random.default_rng(0)
    steps = [generator.integers(0, 200, 30).astype(np.int32) for _ in range(40)]
    assert drive(planners([200], [32]), steps, 6, 1) > 100
    assert drive(planners([200], [200]), steps, 6, 1) == 0


def test_a_step_beyond_the_cache_is_an_error():
    for plan in planners([20], [4]):
        plan.begin(0)
        plan.see(np.arange(5, dtype=np.int32), range(1))
        with pytest.raises(ValueError, match="more rows of table 0 of its stack than the cache has"):
            plan.admit(0)


def in_pages(values):
    """Return values as float32 in memory that begins with a page, as tables in host memory do."""
    made = np.frombuffer(mmap.mmap(-1, 4 * values.size), np.float32).reshape(values.shape)
    made[:] = values
    return made


@pytest.mark.parametrize("dim", [1, 12, 128])
def test_copied_rows_are_exact(dim):
    """Many rows of whole cache lines are written past the caches."""
    if library() is None:
        pytest.skip("no compiler")
    rng = np.random.default_rng(dim)
    table, taken = (in_pages(rng.normal(size=(count, dim))) for count in (20_000, 9_001))
    rows = rng.permutation(len(table))[: len(taken)].astype(np.int32)
    gather(library(), [(table, taken)], rows, threads=3)
    np.testing.assert_array_equal(taken, table[rows])
    want = table.copy()
    want[rows] = -taken
    scatter(library(), [(table, -taken)], rows, threads=3)
    np.testing.assert_array_equal(table, want)


def test_rows_that_are_used_often_stay():
    """A clock over counts keeps more of a skewed stream than one over uses alone could."""
    generator = np.random.default_rng(0)
    steps = [zipf(generator, 20_000, 512).astype(np.int32) for _ in range(150)]
    plan, coming, needed = planners([20_000], [2_000])[-1], 0, 0
    for number, ids in enumerate(steps):
        plan.begin(number)
        plan.see(ids, range(1))
        needed += plan.needed(0) if number >= 100 else 0
        coming += len(plan.admit(0).in_rows) if number >= 100 else 0 * len(plan.admit(0).in_rows)
        plan.end()
    assert coming / needed < 0.42


@pytest.mark.parametrize("cache", [0, -1, 0.0, 1.5, True, "0.1", float("nan"), None])
def test_a_cache_is_a_share_or_a_number_of_rows(cache):
    with pytest.raises(ValueError, match=r"memory: cache must be"):
        sp.HostMemory(cache=cache)
