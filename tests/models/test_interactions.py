"""The interactions of vectors, and the gradient that is written by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sparrow.models import MLP, DeepFM, Inputs, factorization_machine, pairwise_dots


@pytest.mark.parametrize("features", [1, 2, 5])
def test_pairwise_dots_and_their_gradient(features):
    rng = np.random.default_rng(features)
    vectors = rng.normal(size=(3, features, 4)).astype(np.float32)
    pairs = [(i, j) for i in range(features) for j in range(i + 1, features)]
    weights = rng.normal(size=(3, len(pairs))).astype(np.float32)
    out, pullback = jax.vjp(pairwise_dots, vectors)
    assert out.shape == (3, len(pairs))
    grad = np.zeros_like(vectors)
    for p, (i, j) in enumerate(pairs):
        np.testing.assert_allclose(out[:, p], (vectors[:, i] * vectors[:, j]).sum(axis=1), rtol=1e-5, atol=1e-6)
        grad[:, i] += weights[:, p : p + 1] * vectors[:, j]
        grad[:, j] += weights[:, p : p + 1] * vectors[:, i]
    np.testing.assert_allclose(pullback(jnp.asarray(weights))[0], grad, rtol=1e-5, atol=1e-6)


def test_factorization_machine_keeps_its_digits_in_bfloat16():
    """Of two vectors, one a thousand times the other, bfloat16 would keep nothing of the product."""
    large, small = 64.0 * np.array([1.0, 1.5, -2.0]), np.array([0.0625, 0.125, 0.25])
    vectors = jnp.asarray(np.stack([large, small])[None], jnp.bfloat16)
    np.testing.assert_allclose(factorization_machine(vectors)[0], large * small, rtol=1e-3)


def test_numbers_of_the_deep_group_reach_the_network_alone():
    """DeepFM's second-order terms are over embeddings; a number changes what the network reads, and nothing else."""
    groups = {"wide": ["item_wide"], "deep": ["user", "price", "item"]}
    inputs = Inputs(acts={"user": 4, "item": 4, "item_wide": 1}, numbers={"price": 2}, groups=groups)
    model = DeepFM(inputs, deep=MLP((8,)), rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    acts = {name: rng.normal(size=(5, dim)).astype(np.float32) for name, dim in inputs.acts.items()}
    price = rng.normal(size=(5, 2)).astype(np.float32)
    deep = model.logits(model.deep(np.concatenate([acts["user"], price, acts["item"]], axis=1)))
    expected = acts["item_wide"][:, 0] + (acts["user"] * acts["item"]).sum(axis=1) + deep
    np.testing.assert_allclose(model(acts, {"price": price})["logits"], expected, rtol=1e-5, atol=1e-6)
