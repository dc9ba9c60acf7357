"""Tables in host memory give the bytes of tables on the device, for every rule, cache, depth and delay."""

import random
import time

import numpy as np
import pytest

import sparrow as sp
from tests.embedding.host.loops import ROWS, batches, cached, differing, features, on_device
from tests.rule_cases import CASES

SIZE = 24


def compare(rule, cache, steps=40, accumulate=1, clip=None, backend="auto", change=lambda session: None, **options):
    depths = {name: options.pop(name) for name in ("ahead", "lookahead") if name in options}
    specs = features(rule, sp.HostMemory(cache=cache), **options)
    given = list(batches(ROWS, steps * accumulate, SIZE))
    expected, losses = on_device(specs, given, accumulate, clip, backend)
    held, own, session = cached(specs, given, accumulate, clip, backend, change, **depths)
    np.testing.assert_array_equal(losses.view(np.uint32), own.view(np.uint32))
    assert differing(expected, held) == 0
    return session.host.total


def slow_writer(session, seconds=0.004):
    chance = random.Random(0)
    session.host.writer.delay = lambda: time.sleep(chance.random() * seconds)


def test_rows_come_and_leave():
    total = compare(sp.rules.RowwiseAdagrad(0.05), 0.1)
    assert total.leaving > 100
    assert total.bytes_in == total.coming * 4 * (4 + 1)
    assert 0 < total.hits < 1


@pytest.mark.parametrize("depths", [(0, 0), (1, 0), (3, 0), (1, 1), (4, 2), (2, 8)], ids=str)
def test_however_far_ahead_and_however_slow_the_writer(depths):
    total = compare(sp.rules.Adam(0.01), 0.12, steps=60, change=slow_writer, ahead=depths[0], lookahead=depths[1])
    assert total.leaving > 100
    assert total.waited > 0 or depths[1] == 8


def test_without_the_wait_bytes_differ():
    """The test above fails when rows are gathered before they are home."""

    def careless(session):
        slow_writer(session, 0.02)
        session.host._wait = lambda after: 0.0

    with pytest.raises(AssertionError):
        compare(sp.rules.Adam(0.01), 0.12, steps=60, change=careless, ahead=3, lookahead=1)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_rule_with_every_cache(case):
    rows = (4000, 3000, 2000)
    given = list(batches(rows, 200, SIZE))
    expected, losses = on_device(features(case.rule, rows=rows), given)
    for cache, ahead, lookahead in ((0.05, 2, 6), (0.1, 1, 1), (1.0, 0, 0)):
        specs = features(case.rule, sp.HostMemory(cache=cache), rows=rows)
        held, own, session = cached(specs, given, change=slow_writer, ahead=ahead, lookahead=lookahead)
        np.testing.assert_array_equal(losses.view(np.uint32), own.view(np.uint32))
        assert differing(expected, held) == 0
        assert (session.host.total.leaving > 0) == (cache < 1)


def test_accumulation_plans_the_union_of_its_batches():
    compare(sp.rules.RowwiseAdagrad(0.05), 0.25, steps=20, accumulate=3)


def test_clipping_by_the_global_norm():
    compare(sp.rules.Adagrad(0.05), 0.15, clip=0.01)


@pytest.mark.parametrize("backend", ["xla", "auto"])
def test_stochastic_rounding_is_keyed_by_the_row(backend):
    compare(sp.rules.Adagrad(0.05), 0.15, dtype="bfloat16", backend=backend)


def test_a_window_that_does_not_fit_stays_exact():
    total = compare(sp.rules.Adam(0.01), 60, steps=50, ahead=3, lookahead=8)
    assert total.early > 100


def test_rows_on_disk(tmp_path):
    specs = features(sp.rules.Adagrad(0.05), sp.HostMemory(cache=0.15, path=str(tmp_path / "scratch")))
    given = list(batches(ROWS, 20, SIZE))
    held, _, _ = cached(specs, given)
    assert differing(on_device(specs, given)[0], held) == 0
    assert list((tmp_path / "scratch").iterdir()) == []  # gone with the process, even a killed one


def test_one_table_in_host_memory_beside_one_on_the_device():
    specs = features(sp.rules.Adagrad(0.05), sp.HostMemory(cache=0.15))
    plain = features(sp.rules.Adagrad(0.05))
    mixed = [specs[0], *plain[1:]]
    given = list(batches(ROWS, 20, SIZE))
    held, _, session = cached(mixed, given)
    assert differing(on_device(mixed, given)[0], held) == 0
    assert list(session.host.tables) == ["t0"]


def test_frozen_tables():
    compare(sp.rules.SGD(0.0), 0.15, steps=5)
