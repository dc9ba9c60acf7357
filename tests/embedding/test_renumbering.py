"""Caches and shards hold a table's rows under other numbers: no bit of any result may depend on the numbers."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow.embedding.row_grads import sum_in_any_order
from sparrow.kernels.xla import _segment_sum_by_tree
from tests.conftest import AVAILABLE, OPTIMIZED

SIZES = {"users": 50, "items": 30}
BATCH, DIM, STEPS = 160, 6, 2


def embedder(backend, dtype):
    features = [
        sp.FeatureSpec(
            name=name,
            table_spec=sp.TableSpec(
                name=name, vocabulary_size=size, embedding_dim=DIM, optimizer=sp.rules.RowwiseAdagrad(0.1), dtype=dtype
            ),
        )
        for name, size in SIZES.items()
    ]
    return sp.Embedder(features, backend=backend)


def train_step(emb, state, batch, noise, limit, logical_rows):
    """A step on made-up gradients, clipped to the norm ``limit``."""
    grads = emb.row_grads(batch, jax.tree.map(lambda x, n: jnp.sin(3 * x + n), emb.lookup(state, batch), noise))
    norm = grads.global_norm()
    grads = grads.scale(jnp.minimum(1.0, limit / norm))
    return emb.apply(dataclasses.replace(state, table_rows=logical_rows), grads), norm


def batches(rng):
    """Ids with a row that takes half of the batch and a tail of rows that occur once, with noise."""
    for _ in range(STEPS):
        hot = {name: rng.random(BATCH) < 0.5 for name in SIZES}
        ids = {name: np.where(hot[name], 3, rng.integers(0, size, BATCH)) for name, size in SIZES.items()}
        yield ids, {name: jnp.asarray(rng.normal(size=(BATCH, DIM)), jnp.float32) for name in SIZES}


def renumbered(emb, state, moves):
    """The state with row i of each table at ``moves[table][i]``, and the logical rows of its only stack."""
    for name, to in moves.items():
        back = np.argsort(to)
        slots = {slot: array[back] for slot, array in emb.slots(state, name).items()}
        state = emb.with_slots(emb.with_table(state, name, emb.table(state, name)[back]), name, slots)
    (stack,) = emb.stacks
    logical = np.concatenate([np.argsort(moves[table.name]) for table in stack.tables])
    return state, {stack.name: jnp.asarray(logical, jnp.int32)}


def bits(x):
    return np.asarray(x).view(f"u{x.dtype.itemsize}")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("backend", AVAILABLE)
def test_rows_under_other_numbers_give_the_same_bits(backend, dtype):
    emb = embedder(backend, dtype)
    # Optimized code takes several rows at a time, and the last ones one by one. Interpreted kernels stay as they are:
    # they would take far longer to compile.
    options = OPTIMIZED if backend == "xla" else None
    step = jax.jit(functools.partial(train_step, emb), compiler_options=options)
    for limit in (np.inf, 0.5):  # no clipping, and clipping at every step
        rng = np.random.default_rng(5)
        moves = {name: rng.permutation(size) for name, size in SIZES.items()}
        state, own_rows = renumbered(
            emb, emb.init(jax.random.key(0)), {n: np.arange(size) for n, size in SIZES.items()}
        )
        moved, logical_rows = renumbered(emb, state, moves)
        for ids, noise in batches(rng):
            packed = emb.pack({name: moves[name][ids[name]] for name in ids})
            unaware, _ = step(moved, packed, noise, limit, own_rows)
            moved, moved_norm = step(moved, packed, noise, limit, logical_rows)
            state, norm = step(state, emb.pack(ids), noise, limit, own_rows)
            assert norm == moved_norm > 0.5
        for name, to in moves.items():
            np.testing.assert_array_equal(bits(emb.table(state, name)), bits(emb.table(moved, name)[to]))
            for slot, array in emb.slots(state, name).items():
                np.testing.assert_array_equal(bits(array), bits(emb.slots(moved, name)[slot][to]))
            differ = (bits(emb.table(unaware, name)) != bits(emb.table(moved, name))).mean()
            assert differ > 0.1 if dtype == "bfloat16" else differ == 0  # only rounding reads them


@pytest.mark.parametrize("backend", AVAILABLE)
def test_rows_have_their_own_numbers_unless_others_are_given(backend):
    emb = embedder(backend, "bfloat16")
    batch = emb.pack({"users": [3, 7], "items": [0, 3]})
    grads = emb.row_grads(batch, {name: jnp.full((2, DIM), 0.37) for name in SIZES})
    state = emb.init(jax.random.key(0))
    state, own_rows = renumbered(emb, state, {name: np.arange(size) for name, size in SIZES.items()})
    absent, given = (jax.jit(emb.apply)(dataclasses.replace(state, table_rows=rows), grads) for rows in ({}, own_rows))
    for name in SIZES:
        np.testing.assert_array_equal(bits(emb.table(absent, name)), bits(emb.table(given, name)))


def test_the_norm_does_not_depend_on_how_tables_are_stacked():
    rng = np.random.default_rng(1)
    together = rng.normal(size=(3001, 4)).astype(np.float32) ** 2 * np.float32(10.0) ** rng.integers(-12, 13, (3001, 4))
    parts = [jnp.asarray(part) for part in (together[:7, 0], together[7:, 0], *together[:, 1:].T)]
    total = jax.jit(sum_in_any_order)
    expected = total([jnp.asarray(together.ravel())])
    assert total(parts) == total(parts[::-1]) == total([jnp.asarray(rng.permutation(together.ravel()))]) == expected
    np.testing.assert_allclose(expected, together.sum(dtype=np.float64), rtol=3e-7)


@pytest.mark.parametrize(
    ("numbers", "total"),
    [
        ([], 0.0),
        ([0.0, 0.0], 0.0),
        ([3e38, 1.0], 3e38),
        ([3e38, 3e38], np.inf),
        ([1e-30, 2e-30], 3e-30),
        ([1e-37], 0.0),  # too small for the square of a gradient that matters
        ([1.0, np.inf], np.inf),
        ([np.inf, np.nan], np.nan),
    ],
)
def test_extreme_squares(numbers, total):
    found = sum_in_any_order([jnp.asarray(numbers, jnp.float32), jnp.zeros(0)])
    np.testing.assert_allclose(found, total, rtol=1e-6, atol=1e-36)


def test_the_sum_for_gpus_does_not_depend_on_where_a_segment_lies():
    """The function runs on every device. Segments from 5 on are padding at first, and one is empty."""
    rng = np.random.default_rng(3)
    lengths = np.array([1, 0, 333, 2, 7, 8, 9, 31, 32, 64, 65, 3])
    runs = [rng.normal(size=(length, 3)).astype(np.float32) for length in lengths]
    expected = np.stack([run.sum(axis=0, dtype=np.float64) for run in runs])

    def sums(order, num_segments):
        values = jnp.asarray(np.concatenate([runs[i] for i in order]))
        segments = jnp.asarray(np.repeat(np.arange(12), lengths[order]).astype(np.int32))
        found = jax.jit(_segment_sum_by_tree, static_argnums=2)(values, segments, num_segments)
        np.testing.assert_allclose(found, expected[order][:num_segments], rtol=1e-5, atol=1e-5)
        return found

    order = rng.permutation(12)
    np.testing.assert_array_equal(bits(sums(np.arange(12), 5)), bits(sums(order, 12))[np.argsort(order)][:5])
    assert _segment_sum_by_tree(jnp.zeros((0, 3)), jnp.zeros(0, jnp.int32), 2).tolist() == [[0.0] * 3] * 2
