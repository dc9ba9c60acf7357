"""The fused update, on a GPU or emulated."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow import rules
from sparrow.kernels import choose, cuda, xla
from sparrow.kernels.cuda import tuning
from sparrow.kernels.types import EntryGradients
from tests.kernels.native.problems import random_grads, random_state, reference_update, row_step, scalars


def assert_close(got, want, rtol=2e-5):
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=rtol, atol=rtol)


def run(backend, step, state, grads, numbers):
    if backend is xla:
        return reference_update(step, state, grads, numbers)
    return jax.jit(functools.partial(backend.update, step))(*state, grads, numbers)


CASES = [
    (rules.RowwiseAdagrad(), 8, {"count": 300, "with_gains": True}, {}),
    (rules.SGD(), 6, {"count": 200, "with_bags": False}, {"limits": True}),
    (rules.Adam(), 7, {"count": 90, "num_bags": 9}, {}),
    (rules.Adam(), 1, {"count": 40, "with_bags": False, "with_gains": True}, {}),
    (rules.LAMB(), 200, {"count": 60}, {}),
    (rules.RowwiseAdagrad(), 2048, {"count": 40}, {}),
    (rules.Adam(), 1024, {"count": 40}, {"dtype": "bfloat16", "stochastic": True}),  # by slices
    (rules.Adam(), 16, {"count": 120}, {"dtype": "bfloat16", "stochastic": True}),
    (rules.RowwiseAdagrad(), 12, {"count": 120}, {"dtype": "float16", "stochastic": True}),
    (rules.SGD(), 3, {"count": 50}, {"dtype": "bfloat16"}),
]


@pytest.mark.parametrize(
    ("rule", "dim", "entries", "options"), CASES, ids=[f"{rule.name}-{dim}" for rule, dim, *_ in CASES]
)
def test_update_agrees_with_xla(rule, dim, entries, options):
    rng = np.random.default_rng(dim)
    step, limits = row_step(rule, dim, **options), options.get("limits", False)
    first_rows = (0, 7, 20) if dim < 100 else (0,)
    state, grads = random_state(step, 40, rng), random_grads(rng, dim, 40, **entries)
    numbers = scalars(rule, first_rows, limits=limits)
    assert cuda.unsupported(step) is None
    got, want = (run(backend, step, state, grads, numbers) for backend in (cuda, xla))
    assert_close(got[1], want[1])
    if step.dtype == "float32":
        assert_close(got[0], want[0])
    else:  # a last bit of float32 may tip an element over to its other neighbor
        tipped = np.asarray(got[0], np.float64) != np.asarray(want[0], np.float64)
        assert tipped.mean() < 0.02
        assert_close(got[0], want[0], rtol=2e-2)


@pytest.mark.parametrize("table", ["float32", "bfloat16"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_in_16_bits_are_read_as_they_are(table, dtype):
    rng = np.random.default_rng(1)
    step = row_step(rules.RowwiseAdagrad(), 16, dtype=table)
    state, grads = random_state(step, 30, rng), random_grads(rng, 16, 30)
    grads = grads._replace(bag_grads=grads.bag_grads.astype(dtype))
    numbers = scalars(rules.RowwiseAdagrad())
    wide = grads._replace(bag_grads=grads.bag_grads.astype(jnp.float32))
    got, want = run(cuda, step, state, grads, numbers), run(xla, step, state, wide, numbers)
    assert_close(got, want, rtol=2e-5 if table == "float32" else 8e-3)


def hot(kind, count):
    """Ids that cut segments everywhere: into one piece, two, many nodes."""
    rng = np.random.default_rng(5)
    lengths = rng.choice([1, 2, 3, 5, 31, 32, 33, 63, 64, 65, 97, 130], count)
    return {
        "one row": np.full(count, 3),
        "two rows": np.where(np.arange(count) < count // 2 + 5, 3, 11),
        "runs": np.repeat(np.arange(count) % 37, lengths)[:count],
    }[kind].astype(np.int32)


@pytest.mark.parametrize(("kind", "count"), [("one row", 2500), ("two rows", 1100), ("runs", 1500)])
@pytest.mark.parametrize("dim", [4, 128, 520])
def test_cut_segments(kind, count, dim):
    """Every level of the tree is reached, the sum is right, and its bits depend on the row's own entries alone."""
    rng = np.random.default_rng(2)
    step = row_step(rules.SGD(), dim)
    state, numbers = random_state(step, 40, rng), scalars(rules.SGD())
    ids = hot(kind, count)
    grads = EntryGradients(jnp.asarray(ids), None, None, jnp.asarray(rng.normal(size=(count, dim)), jnp.float32))
    got, again = (run(cuda, step, state, grads, numbers) for _ in range(2))
    sums = np.zeros((40, dim))
    np.add.at(sums, ids, np.asarray(grads.bag_grads, np.float64))
    rate = float(numbers.hyper[0, 0])
    np.testing.assert_allclose(got[0], np.asarray(state[0]) - rate * sums, rtol=1e-5, atol=2e-5)
    np.testing.assert_array_equal(got[0], again[0])
    # The same entries of row 3 among others, at other positions.
    shift = np.concatenate([np.full(17, 1), ids, np.full(50, 2)]).astype(np.int32)
    others = np.concatenate([np.ones((17, dim)), grads.bag_grads, np.ones((50, dim))]).astype(np.float32)
    moved = run(cuda, step, state, EntryGradients(jnp.asarray(shift), None, None, jnp.asarray(others)), numbers)
    np.testing.assert_array_equal(np.asarray(moved[0])[3], np.asarray(got[0])[3])


def test_padding_and_ids_out_of_range_touch_nothing():
    rng = np.random.default_rng(3)
    step = row_step(rules.Adam(), 8)
    state, numbers = random_state(step, 20, rng), scalars(rules.Adam())
    ids = np.array([-1, 20, 5, 2**31 - 1, -(2**31), 5], np.int32)
    grads = EntryGradients(jnp.asarray(ids), None, None, jnp.ones((6, 8)))
    table, slots = run(cuda, step, state, grads, numbers)
    others = np.arange(20) != 5
    for new, old in zip((table, *slots), (state[0], *state[1]), strict=True):
        np.testing.assert_array_equal(np.asarray(new)[others], np.asarray(old)[others])
        assert (np.asarray(new)[5] != np.asarray(old)[5]).any()
    nothing = EntryGradients(jnp.full(40, 20, jnp.int32), None, None, jnp.ones((40, 8)))
    for new, old in zip(jax.tree.leaves(run(cuda, step, state, nothing, numbers)), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(new, old)


def test_no_entries_and_no_bags():
    rng = np.random.default_rng(3)
    step = row_step(rules.SGD(), 4)
    state, numbers = random_state(step, 9, rng), scalars(rules.SGD())
    empty = EntryGradients(jnp.zeros(0, jnp.int32), None, None, jnp.zeros((0, 4)))
    np.testing.assert_array_equal(run(cuda, step, state, empty, numbers)[0], state[0])
    # A row whose bag does not exist is touched, with no gradient.
    step, numbers = row_step(rules.Adam(), 4), scalars(rules.Adam())
    state = random_state(step, 9, rng)
    touched = EntryGradients(jnp.zeros(3, jnp.int32), jnp.full(3, 7, jnp.int32), None, jnp.zeros((0, 4)))
    zeros = touched._replace(bags=None, bag_grads=jnp.zeros((3, 4)))
    got = run(cuda, step, state, touched, numbers)
    assert_close(got, run(xla, step, state, zeros, numbers))
    assert (np.asarray(got[0])[0] != np.asarray(state[0])[0]).any()


def test_logical_rows_key_the_rounding():
    """A renumbered stack rounds each row as the complete table does."""
    rng = np.random.default_rng(4)
    step = row_step(rules.SGD(), 8, dtype="bfloat16", stochastic=True)
    state, grads, numbers = random_state(step, 30, rng), random_grads(rng, 8, 30), scalars(rules.SGD())
    renumbered = numbers._replace(logical_rows=jnp.asarray(rng.permutation(30), jnp.int32))
    got, want = (run(backend, step, state, grads, renumbered)[0] for backend in (cuda, xla))
    assert (np.asarray(got, np.float32) != np.asarray(want, np.float32)).mean() < 0.02
    plain = run(cuda, step, state, grads, numbers)[0]
    assert (np.asarray(got, np.float32) != np.asarray(plain, np.float32)).mean() > 0.1


def test_the_order_of_a_lookup_gives_the_bits_of_the_update_that_sorts_itself():
    from tests.kernels.native.problems import random_lookups

    rng = np.random.default_rng(6)
    step, numbers = row_step(rules.RowwiseAdagrad(), 8), scalars(rules.RowwiseAdagrad())
    state = random_state(step, 600, rng)  # rows of two digits
    for with_gains in (False, True):
        lookups = random_lookups(rng, 600, 50, with_gains=with_gains)
        bag_grads = jnp.asarray(rng.normal(size=(50, 8)), jnp.float32)

        @jax.jit
        def both(state, lookups, bag_grads):
            rows, ordered = cuda.lookup_and_sort(state[0], lookups)
            grads = EntryGradients(ordered.ids, ordered.bags, ordered.gains, bag_grads, ordered.order)
            return rows, cuda.update(step, *state, grads, numbers)

        rows, got = both(state, lookups, bag_grads)
        want = run(cuda, step, state, EntryGradients(lookups.ids, lookups.bags, lookups.gains, bag_grads), numbers)
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_array_equal(g, w)
        assert_close(rows, xla.lookup(state[0], lookups))


def test_scan_equals_single_calls_and_a_donated_table_stays_in_place():
    rng = np.random.default_rng(7)
    step, numbers = row_step(rules.Adam(), 8), scalars(rules.Adam())
    state, grads = random_state(step, 30, rng), random_grads(rng, 8, 30)

    def one(state, _):
        return cuda.update(step, *state, grads, numbers), None

    scanned = jax.jit(lambda state: jax.lax.scan(one, state, None, length=3)[0])(state)
    single = jax.jit(lambda state: one(state, None)[0], donate_argnums=0)
    called = jax.tree.map(jnp.array, state)
    before = called[0].unsafe_buffer_pointer()
    for _ in range(3):
        called = single(called)
    assert called[0].unsafe_buffer_pointer() == before
    for a, b in zip(jax.tree.leaves(scanned), jax.tree.leaves(called), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("change", [{"task": 4, "ones": 3, "lanes": 2}, {"task": 2, "warps": 1, "ones": 1, "lanes": 1}])
def test_the_tuning_changes_no_bits_of_a_rule_without_sums(change, monkeypatch):
    rng = np.random.default_rng(8)
    step, numbers = row_step(rules.Adam(), 8), scalars(rules.Adam(), (0, 9, 30))
    state, grads = random_state(step, 40, rng), random_grads(rng, 8, 40, count=700, with_gains=True)
    want = run(cuda, step, state, grads, numbers)
    found = tuning.for_update

    monkeypatch.setattr(tuning, "for_update", lambda *a: dataclasses.replace(found(*a), min_blocks=1, **change))
    got = run(cuda, step, state, grads, numbers)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_array_equal(g, w)


@dataclasses.dataclass(frozen=True)
class Running(rules.Rule):
    """A rule that no row kernel can run."""

    def update(self, row, grad, slots, h):
        return row - h.learning_rate * jnp.cumsum(grad), slots


def test_what_cannot_be_translated_runs_on_xla_with_a_warning():
    step = row_step(Running(), 4)
    assert "cumsum" in cuda.unsupported(step)
    with pytest.warns(UserWarning, match=r"Running runs on the slower 'xla' backend.*cumsum"):
        assert choose("cuda", step) is xla
    assert "2049 elements" in cuda.unsupported(row_step(rules.SGD(), 2049))
    with pytest.raises(RuntimeError, match="cannot run Running"):
        cuda.update(step, *random_state(step, 5, np.random.default_rng(0)), None, None)
