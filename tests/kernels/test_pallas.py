"""The GPU kernels. On a machine without a GPU they are interpreted, on small sizes; on one they run for real."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow import rules
from sparrow.kernels import choose, pallas, xla
from sparrow.kernels.pallas import fused, order, tuning
from sparrow.kernels.pallas.padded import padded
from sparrow.kernels.types import Lookups, RowGradients, RowStep, StepScalars

pytestmark = pytest.mark.slow


def make_step(rule, dim, dtype="float32", **options):
    slots = tuple((name, slot.layout) for name, slot in rule.slots.items())
    scalars = (*rule.hyper(0), *(("min_value", "max_value") if options.get("limits") else ()))
    return RowStep(rule.without_numbers(), slots, scalars, dim, dtype, **options)


def make_case(rule, num_rows=40, dim=5, count=120, num_bags=30, tables=1, gains=True, bags=True, seed=0, **options):
    """A step and random inputs: repeated ids, some of them padding."""
    rng = np.random.default_rng(seed)
    step = make_step(rule, dim, **options)
    limits = [-0.5, 0.5] if step.limits else []
    hyper = np.array([[*map(float, rule.hyper(3 * t).values()), *limits] for t in range(tables)], np.float32)
    scalars = StepScalars(
        jnp.asarray(hyper.reshape(tables, len(step.scalars))),
        jnp.asarray(rng.integers(0, 2**32, tables), jnp.uint32),
        jnp.asarray(np.arange(tables) * (num_rows // tables), jnp.int32),
    )
    ids = np.minimum(rng.geometric(0.1, count) - 1, num_rows + 2).astype(np.int32)
    grads = RowGradients(
        jnp.asarray(ids),
        jnp.asarray(rng.integers(0, num_bags, count), jnp.int32) if bags else None,
        jnp.asarray(rng.random(count) + 0.5, jnp.float32) if gains else None,
        jnp.asarray(rng.normal(size=(num_bags if bags else count, dim)), jnp.float32),
    )
    table = jnp.asarray(rng.normal(size=(num_rows, dim)), step.dtype)
    slots = tuple(jnp.asarray(rng.random((num_rows, *shape)), jnp.float32) for shape in step.slot_shapes)
    return step, table, slots, grads, scalars


def row_sums(grads, num_rows):
    """(num_rows, dim) float64."""
    sums = np.zeros((num_rows, grads.bag_grads.shape[1]))
    bags = np.arange(len(grads.ids)) if grads.bags is None else np.asarray(grads.bags)
    gains = np.ones(len(grads.ids)) if grads.gains is None else np.asarray(grads.gains, np.float64)
    ids = np.asarray(grads.ids)
    valid = (ids >= 0) & (ids < num_rows)
    np.add.at(sums, ids[valid], (gains[:, None] * np.asarray(grads.bag_grads, np.float64)[bags])[valid])
    return sums


def assert_close(found, expected, rtol=2e-5):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("rule", "case"),
    [
        (rules.RowwiseAdagrad(), {"dim": 5, "tables": 3}),
        (rules.LAMB(), {"dim": 130, "bags": False, "count": 60}),
        (rules.Adam(), {"dim": 1, "bags": False, "gains": False, "count": 4}),
        (rules.SGD(), {"dim": 12, "gains": False, "limits": True}),
        (rules.Adam(), {"dim": 6, "dtype": "bfloat16", "stochastic": True, "tables": 2}),
        (rules.RowwiseAdagrad(), {"dim": 4, "dtype": "float16", "stochastic": True, "count": 4}),
    ],
    ids=lambda value: value.name if isinstance(value, rules.Rule) else "-".join(map(str, value.values())),
)
def test_update_agrees_with_xla(rule, case):
    step, *arguments = make_case(rule, **case)
    assert pallas.unsupported(step) is None
    found = jax.jit(functools.partial(pallas.update, step))(*arguments)
    expected = jax.jit(functools.partial(xla.update, step))(*arguments)
    # Where a row is rounded at random, a last bit of float32 may still tip one element over to its other neighbour.
    assert_close(found[1], expected[1])
    tipped = np.asarray(found[0], np.float64) != np.asarray(expected[0], np.float64)
    if step.stochastic:
        assert tipped.mean() < 0.02
    else:
        assert_close(found[0], expected[0])


def test_update_sums_in_float64_precision_and_leaves_other_rows_alone():
    step, table, slots, grads, scalars = make_case(rules.SGD(learning_rate=1.0), dim=8, count=200)
    grads = grads._replace(ids=grads.ids.at[:7].set(-1))  # below the table, as padding is above it
    new_table, _ = jax.jit(functools.partial(pallas.update, step))(table, slots, grads, scalars)
    sums = row_sums(grads, table.shape[0])
    np.testing.assert_allclose(np.asarray(table, np.float64) - np.asarray(new_table), sums, atol=1e-5)
    untouched = ~np.isin(np.arange(table.shape[0]), np.asarray(grads.ids))
    assert untouched.any()
    np.testing.assert_array_equal(np.asarray(new_table)[untouched], np.asarray(table)[untouched])


def test_one_id_fills_the_batch():
    """Every level of the fold is reached, and the same bits come twice."""
    step, table, slots, grads, scalars = make_case(rules.RowwiseAdagrad(), dim=3, count=180, bags=False, gains=False)
    grads = grads._replace(ids=jnp.where(jnp.arange(180) % 50 == 0, grads.ids, 17))
    deep = dataclasses.replace(tuning.for_update(step), chunk=4, fold_chunk=4, last_level=16)
    update = jax.jit(functools.partial(fused.update, step, tuning=deep))
    found, again = (update(table, slots, grads, scalars) for _ in range(2))
    expected = jax.jit(functools.partial(xla.update, step))(table, slots, grads, scalars)
    assert_close(found, expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_nothing_to_do():
    step, table, slots, grads, scalars = make_case(rules.RowwiseAdagrad(), count=4)
    update = jax.jit(functools.partial(pallas.update, step))
    padding = grads._replace(ids=jnp.full(4, table.shape[0], jnp.int32))
    empty = RowGradients(padding.ids[:0], padding.bags[:0], padding.gains[:0], padding.bag_grads)
    for nothing in (padding, empty):
        for a, b in zip(jax.tree.leaves(update(table, slots, nothing, scalars)), [table, *slots], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("chunk", [3, 8])
def test_pieces_cover_every_segment_once(chunk):
    rng = np.random.default_rng(chunk)
    lengths = rng.integers(1, 30, 12) * rng.integers(0, 2, 12) + 1
    rows = np.repeat(np.arange(12) * 3, lengths)
    padded_rows = jnp.asarray(np.concatenate([rows, np.full(5, 40)]), jnp.int32)
    work = jax.jit(lambda r: order.pieces(r, 40, chunk, jnp.asarray([0, 18], jnp.int32)))(padded_rows)
    several, singles = int(work.several[0]), int(work.singles[0])
    covered = np.zeros(len(padded_rows), int)
    left = {}  # by row, where the pieces of its segment leave their sums, and how long they are
    for k in range(several):
        start, stop = int(work.starts[k]), int(work.stops[k])
        first, last = max(start, ~start), max(stop, ~stop)
        assert 0 < last - first < 2 * chunk
        row = int(padded_rows[first])
        assert set(np.asarray(padded_rows[first:last])) == {row}
        assert int(work.tables[k]) == int(row >= 18)
        assert (start < 0) == (first > 0 and int(padded_rows[first - 1]) == row)
        assert (stop < 0) == (int(padded_rows[last]) == row)
        covered[first:last] += 1
        left.setdefault(row, []).append((first // chunk, last - first))
    for row, found in left.items():
        places, sizes = zip(*found, strict=True)
        length = int((rows == row).sum())
        cuts = max(length // chunk - 1, 0)
        assert sizes == (*[chunk] * cuts, length - cuts * chunk)  # counted from the segment's start
        if cuts:
            assert places == tuple(range(places[0], places[0] + cuts + 1))
            assert {int(work.heads[place]) for place in places} == {places[0]}
    folded = {place for found in left.values() if len(found) > 1 for place, _ in found}
    alone = set(range(len(work.heads))) - folded
    assert alone
    assert all(int(work.heads[place]) == place for place in alone)
    for k in range(singles):
        at = int(work.starts[-1 - k])
        assert int(work.tables[-1 - k]) == int(padded_rows[at] >= 18)
        covered[at] += 1
    np.testing.assert_array_equal(covered, np.asarray(padded_rows) < 40)


@pytest.mark.parametrize("gains", [True, False])
def test_lookup_of_ragged_bags(gains):
    rng = np.random.default_rng(1)
    lengths = np.array([0, 3, 1, 0, 7, 2, 1, 0, 12, 0])
    bags = np.repeat(np.arange(10), lengths)
    ids = rng.integers(0, 22, len(bags))  # 20 and 21 are padding
    weights = rng.random(len(bags)).astype(np.float32)
    table = jnp.asarray(rng.normal(size=(20, 6)), jnp.bfloat16)
    lookups = Lookups(
        jnp.asarray(ids, jnp.int32),
        jnp.asarray(bags, jnp.int32),
        jnp.asarray(np.concatenate([[0], np.cumsum(lengths)]), jnp.int32),
        jnp.asarray(weights) if gains else None,
        10,
    )
    expected = np.zeros((10, 6))
    rows = np.concatenate([np.asarray(table, np.float64), np.zeros((2, 6))])[ids]
    np.add.at(expected, bags, rows * weights[:, None] if gains else rows)
    np.testing.assert_allclose(jax.jit(pallas.lookup)(table, lookups), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", [rule() for rule in rules.SHIPPED], ids=lambda rule: rule.name)
def test_a_padded_row_steps_like_the_row(rule):
    step, table, slots, grads, scalars = make_case(rule, dim=5, count=8, bags=False)
    assert pallas.unsupported(step) is None
    args = table[0], grads.bag_grads[0], [slot[0] for slot in slots], list(scalars.hyper[0])
    pad = functools.partial(jnp.pad, pad_width=(0, 3), constant_values=jnp.nan)  # what lies past the row must not leak
    wide = jax.tree.map(lambda x: pad(x) if x.shape == (5,) else x, args)
    found = jax.tree.map(lambda x: x[:5] if x.shape == (8,) else x, jax.jit(padded(step, 8))(*wide))
    assert_close(found, jax.jit(step)(*args), rtol=1e-6)


@dataclasses.dataclass(frozen=True)
class Running(rules.Rule):
    """A rule that no row kernel can run."""

    def update(self, row, grad, slots, h):
        return row - h.learning_rate * jnp.cumsum(grad), slots


@dataclasses.dataclass(frozen=True)
class Dotted(rules.Rule):
    """A rule that reduces by a dot product and clips: NaN must come through."""

    def update(self, row, grad, slots, h):
        return jnp.minimum(row - h.learning_rate * grad / jnp.sqrt(grad @ grad), 0.5), slots


def test_an_operation_that_cannot_be_lowered_is_named():
    step = make_step(Running(), 4)
    assert "cumsum" in pallas.unsupported(step)
    with pytest.warns(UserWarning, match=r"Running runs on the slower 'xla' backend.*cumsum"):
        assert choose("pallas", step) is xla
    assert "2049 elements" in pallas.unsupported(make_step(rules.SGD(), 2049))


def test_a_rule_of_ones_own():
    step, table, slots, grads, scalars = make_case(Dotted(), dim=5, count=4, bags=False)
    grads = grads._replace(bag_grads=grads.bag_grads.at[0].set(jnp.nan))
    found = jax.jit(functools.partial(pallas.update, step))(table, slots, grads, scalars)
    expected = jax.jit(functools.partial(xla.update, step))(table, slots, grads, scalars)
    assert np.isnan(np.asarray(found[0])).any()
    assert_close(found, expected)
