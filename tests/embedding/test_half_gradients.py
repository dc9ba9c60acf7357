"""Gradients of activations in 16 bits: read as they are, summed in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp

ROWS, DIM, BATCH = 30, 6, 16


def embedder(backend, **options):
    rule = sp.rules.RowwiseAdagrad(0.1, **options)
    pooled = sp.TableSpec(name="pooled", vocabulary_size=ROWS, embedding_dim=DIM, optimizer=rule, combiner="mean")
    single = sp.TableSpec(name="single", vocabulary_size=ROWS, embedding_dim=DIM, optimizer=sp.rules.Adam(0.1))
    features = [sp.FeatureSpec(name="seen", table_spec=pooled), sp.FeatureSpec(name="user", table_spec=single)]
    return sp.Embedder(features, backend=backend)


def problem(emb, dtype):
    rng = np.random.default_rng(0)
    batch = emb.pack({"seen": rng.integers(0, ROWS, (BATCH, 5)), "user": rng.integers(0, 4, BATCH)})
    grads = {name: jnp.asarray(rng.normal(size=(BATCH, DIM)), dtype) for name in ("seen", "user")}
    return emb.init(jax.random.key(0)), batch, grads


def assert_same(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_they_move_the_tables_as_their_numbers_in_float32_do(backend, dtype):
    emb = embedder(backend)
    state, batch, grads = problem(emb, dtype)
    wide = {name: grad.astype(jnp.float32) for name, grad in grads.items()}
    update = jax.jit(emb.update)
    assert_same(update(state, batch, grads), update(state, batch, wide))
    assert all(str(part.bag_grads.dtype) == dtype for part in emb.row_grads(batch, grads).stacks.values())


@pytest.mark.slow
def test_limits_scaling_and_norms_are_in_float32():
    emb = embedder("xla", max_gradient=0.3)
    state, batch, grads = problem(emb, "bfloat16")
    wide = {name: grad.astype(jnp.float32) for name, grad in grads.items()}
    narrow_rows, wide_rows = emb.row_grads(batch, grads), emb.row_grads(batch, wide)
    np.testing.assert_array_equal(narrow_rows.global_norm(), wide_rows.global_norm())
    assert_same(narrow_rows.scale(1 / 3), wide_rows.scale(1 / 3))
    both = [emb.apply(state, a + b) for a, b in ((narrow_rows, wide_rows), (wide_rows, wide_rows))]
    assert_same(*both)
