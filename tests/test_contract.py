"""What every rule must do on every backend: one list of rules, one suite."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from tests.conftest import AVAILABLE
from tests.harness import (
    BATCH,
    DIM,
    ELEMENTS,
    ROWS,
    SHAPES,
    Float64Twin,
    problem,
    random_grads,
    random_inputs,
)
from tests.rule_cases import CASES

NAMES = [case.name for case in CASES]
SOME = ["sgd_nesterov", "rowwise_adagrad_l2", "adam_by_row", "partial_rowwise_lamb", "user_rule"]


def rules_and_backends(names=NAMES):
    """Each of the rules ``names`` on each backend."""
    return pytest.mark.parametrize(("case", "backend"), [(name, backend) for backend in AVAILABLE for name in names])


every_rule = rules_and_backends()
POOLED = ("bag", "same_table", "weighted")


def train(setup, steps, seed=0):
    rng = np.random.default_rng(seed)
    state = setup.fresh()
    twin = Float64Twin(setup, state)
    for t in range(steps):
        inputs, grads = random_inputs(rng), random_grads(rng)
        state = setup.update(state, setup.pack(inputs), grads)
        twin.step(t, inputs, grads)
    return state, twin


def bits(setup, state, rows=None):
    """Every table and slot, or some rows of them, as bytes by name."""
    emb = setup.embedder
    arrays = {(name, "table"): emb.table(state, name) for name in ROWS}
    arrays |= {(name, slot): value for name in ROWS for slot, value in emb.slots(state, name).items()}
    return {(n, s): np.asarray(a)[rows[n] if rows else slice(None)].tobytes() for (n, s), a in arrays.items()}


@every_rule
def test_equals_float64_over_20_steps(case, backend):
    setup = problem(case, backend)
    state, twin = train(setup, 20)
    for name in ROWS:
        table = np.asarray(setup.embedder.table(state, name))
        np.testing.assert_allclose(table, twin.tables[name], rtol=2e-6, atol=2e-6 * np.abs(twin.tables[name]).max())
        for slot, value in setup.embedder.slots(state, name).items():
            expected = twin.slots[name][slot]
            np.testing.assert_allclose(value, expected, rtol=2e-6, atol=2e-6 * np.abs(expected).max(), err_msg=slot)


@every_rule
def test_same_bits_twice(case, backend):
    setup = problem(case, backend)
    assert bits(setup, train(setup, 3)[0]) == bits(setup, train(setup, 3)[0])


@every_rule
def test_untouched_rows_keep_their_bits(case, backend):
    setup = problem(case, backend)
    untouched = {"left": [8, 9, 10], "right": [4, 5, 6]}
    assert bits(setup, train(setup, 3)[0], untouched) == bits(setup, setup.fresh(), untouched)


@every_rule
def test_zero_gradient_touches_the_row(case, backend):
    """A looked-up row with a zero gradient takes its step: moments decay, weight decay acts, counts count."""
    setup = problem(case, backend)
    state, twin = train(setup, 2)
    inputs = random_inputs(np.random.default_rng(0))
    zeros = {name: jnp.zeros(shape) for name, shape in SHAPES.items()}
    state = setup.update(state, setup.pack(inputs), zeros)
    twin.step(2, inputs, zeros)
    for name in ROWS:
        np.testing.assert_allclose(setup.embedder.table(state, name), twin.tables[name], rtol=1e-5, atol=1e-6)
        for slot, value in setup.embedder.slots(state, name).items():
            np.testing.assert_allclose(value, twin.slots[name][slot], rtol=1e-5, atol=1e-6, err_msg=slot)


@every_rule
def test_no_nan_from_zeros(case, backend):
    setup = problem(case, backend)
    state = setup.fresh()
    state = jax.tree.map(lambda x: jnp.zeros_like(x), state)
    batch = setup.pack(random_inputs(np.random.default_rng(0)))
    for _ in range(2):
        state = setup.update(state, batch, {name: jnp.zeros(shape) for name, shape in SHAPES.items()})
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.tables, state.slots)))


@rules_and_backends(SOME)  # entries are added before any rule sees them
def test_sum_of_row_grads_equals_the_concatenated_batch(case, backend):
    setup = problem(case, backend)
    rng = np.random.default_rng(3)
    first, second = random_inputs(rng), random_inputs(rng)
    grads, more = random_grads(rng), random_grads(rng)
    emb = setup.embedder
    one_by_one = emb.row_grads(setup.pack(first), grads) + emb.row_grads(setup.pack(second), more)
    added = setup.apply(setup.fresh(), one_by_one)

    ragged = [inputs["weighted"] for inputs in (first, second)]
    both = {
        "bag": first["bag"] + second["bag"],
        "same_table": np.concatenate([first["same_table"], second["same_table"]]),
        "weighted": sp.Ragged(
            np.concatenate([r.values for r in ragged]),
            np.concatenate([ragged[0].offsets, ragged[0].offsets[-1] + ragged[1].offsets[1:]]),
            np.concatenate([r.weights for r in ragged]),
        ),
        "ordered": first["ordered"] + second["ordered"],
    }
    together = {name: jnp.concatenate([grads[name], more[name]]) for name in POOLED}
    together["ordered"] = jnp.concatenate([of["ordered"][:ELEMENTS] for of in (grads, more)])  # a size class itself
    at_once = setup.apply(setup.fresh(), emb.row_grads(emb.pack(both), together))
    for name in ROWS:
        np.testing.assert_allclose(emb.table(added, name), emb.table(at_once, name), rtol=3e-6, atol=1e-6)
    assert int(added.step) == int(at_once.step) == 1


@rules_and_backends(["sgd", "rowwise_adagrad", "adam", "user_rule"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bit_tables_round_to_a_neighbor(case, dtype, backend):
    """Stochastic rounding lands on one of the two neighbors of the float32 result, and both ways."""
    rule = problem(case, "xla").case.rule
    table = sp.TableSpec(name="t", vocabulary_size=64, embedding_dim=8, optimizer=rule, dtype=dtype)
    emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)], backend=backend)
    state = emb.init(jax.random.key(0))
    exact = sp.Embedder(
        [
            sp.FeatureSpec(
                name="f", table_spec=sp.TableSpec(name="t", vocabulary_size=64, embedding_dim=8, optimizer=rule)
            )
        ],
        backend="xla",
    )
    exact_state = exact.with_table(exact.init(jax.random.key(0)), "t", emb.table(state, "t").astype(jnp.float32))
    batch = emb.pack({"f": np.arange(64)})
    grads = {"f": jax.random.normal(jax.random.key(2), (64, 8)) * 0.01}
    got = np.asarray(emb.table(jax.jit(emb.update)(state, batch, grads), "t").astype(jnp.float32))
    want = np.asarray(exact.table(jax.jit(exact.update)(exact_state, batch, grads), "t"))
    spacing = np.maximum(np.abs(want), 2.0**-14) * {"bfloat16": 2.0**-7, "float16": 2.0**-10}[dtype]
    assert (np.abs(got - want) <= 1.001 * spacing + 1e-7).all()  # backends differ by an ulp of float32 before rounding
    assert (got > want).any()
    assert (got < want).any()


def test_schedule_does_not_recompile(backend):
    setup = problem("adagrad_schedule", backend)
    rng = np.random.default_rng(0)
    batch = setup.pack(random_inputs(rng))
    state = setup.update(setup.fresh(), batch, random_grads(rng))
    compiled = setup.update._cache_size()
    for _ in range(3):
        state = setup.update(state, batch, random_grads(rng))
    assert setup.update._cache_size() == compiled
    assert int(state.step) == 4


@rules_and_backends(["sgd", "adam"])
def test_empty_batch_changes_nothing_but_the_step(case, backend):
    setup = problem(case, backend)
    empty = {"bag": [[]] * BATCH, "same_table": sp.Ragged([], [0] * (BATCH + 1)), "weighted": [[]] * BATCH}
    empty["ordered"] = [[]] * BATCH
    before = bits(setup, setup.fresh())
    batch = setup.pack(empty)
    state = setup.fresh()
    acts = setup.lookup(state, batch)
    assert all((np.asarray(value) == 0).all() for value in acts.values())
    state = setup.update(state, batch, random_grads(np.random.default_rng(0)))
    assert bits(setup, state) == before
    assert int(state.step) == 1


def test_lookup_pools_with_gains(backend):
    setup = problem("sgd", backend)
    state, rng = setup.fresh(), np.random.default_rng(7)
    inputs = random_inputs(rng)
    acts = setup.lookup(state, setup.pack(inputs))
    left, right = (np.asarray(setup.embedder.table(state, name), np.float64) for name in ROWS)
    ragged = inputs["weighted"]
    for b in range(BATCH):
        ids = inputs["bag"][b]
        expected = left[ids].mean(axis=0) if ids else np.zeros(DIM)
        np.testing.assert_allclose(acts["bag"][b], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(acts["same_table"][b], left[inputs["same_table"][b]], rtol=1e-6)
        part = slice(ragged.offsets[b], ragged.offsets[b + 1])
        np.testing.assert_allclose(
            acts["weighted"][b], ragged.weights[part] @ right[ragged.values[part]], rtol=1e-6, atol=1e-6
        )


def test_ordered_rows_are_those_of_the_table(backend):
    setup = problem("sgd", backend)
    state, inputs = setup.fresh(), random_inputs(np.random.default_rng(8))
    batch = setup.pack(inputs)
    acts = setup.lookup(state, batch)
    right = np.asarray(setup.embedder.table(state, "right"))
    for sequence, (start, stop) in zip(inputs["ordered"], itertools.pairwise(batch.offsets["ordered"]), strict=True):
        assert (np.asarray(acts["ordered"][start:stop]) == right[np.array(sequence, int)]).all()
    assert (np.asarray(acts["ordered"][ELEMENTS:]) == 0).all()


def test_every_shipped_rule_is_here():
    tested = {type(case.rule) for case in CASES}
    assert [rule.__name__ for rule in sp.rules.SHIPPED if rule not in tested] == []
