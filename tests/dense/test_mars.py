"""MARS against a peer, against its equations in float64, and against Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import dense
from sparrow.dense.mars import Mars
from tests.dense.peer_runs import CASES, distance, ours, peer


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("mars")])
def test_trajectories_equal_the_peers(case):
    assert distance(ours(case), peer(case)) < 1e-6


def test_the_comparison_can_fail():
    assert distance(ours("mars_clip", clip="per_tensor"), peer("mars_clip")) > 1e-5
    assert distance(ours("mars_default", gamma=0.03), peer("mars_default")) > 1e-5


def in_float64(gradients, beta1, beta2, gamma, eps, max_grad_norm):
    """The directions of one parameter, clipped on its own, straight from the paper."""
    mu = nu = previous = np.zeros(gradients[0].shape)
    directions = []
    for t, g in enumerate(np.asarray(gradients, np.float64), start=1):
        c = g + gamma * beta1 / (1 - beta1) * (g - previous)
        norm = np.sqrt(np.sum(c * c))
        if norm > max_grad_norm:
            c = c / norm * max_grad_norm
        mu = beta1 * mu + (1 - beta1) * c
        nu = beta2 * nu + (1 - beta2) * c * c
        directions.append(mu / (1 - beta1**t) / (np.sqrt(nu / (1 - beta2**t)) + eps))
        previous = g
    return np.stack(directions)


@pytest.mark.parametrize("max_grad_norm", [0.5, 1.0, 3.0])
def test_per_tensor_clipping(max_grad_norm):
    hyper = {"beta1": 0.9, "beta2": 0.95, "gamma": 0.1, "eps": 1e-3, "max_grad_norm": max_grad_norm}
    random = np.random.RandomState(0)
    # Norms on both sides of the limit, from step to step and from parameter to parameter.
    sizes = {"w": np.array([0.1, 2.0, 0.3, 4.0, 0.01, 1.0]), "b": np.array([1.0, 0.2, 0.1, 0.5, 3.0, 0.0])}
    gradients = {name: (size[:, None] * random.normal(size=(6, 3))).astype(np.float32) for name, size in sizes.items()}
    tx = Mars(clip="per_tensor", **hyper).direction()
    state, found = tx.init({"w": jnp.zeros(3), "b": jnp.zeros(3)}), []
    for t in range(6):
        direction, state = tx.update({name: jnp.asarray(values[t]) for name, values in gradients.items()}, state)
        found.append(direction)
    for name, values in gradients.items():
        np.testing.assert_allclose(
            np.stack([direction[name] for direction in found]), in_float64(values, **hyper), rtol=2e-5, atol=1e-6
        )


def test_without_correction_and_clipping_it_is_adam():
    gradients = [jnp.asarray(np.random.RandomState(seed).normal(size=5), jnp.float32) for seed in range(4)]
    ours_, adam = Mars(0.9, 0.999, gamma=0.0, max_grad_norm=None).direction(), optax.scale_by_adam(0.9, 0.999)
    state, adam_state = ours_.init(gradients[0]), adam.init(gradients[0])
    for gradient in gradients:
        found, state = ours_.update(gradient, state)
        expected, adam_state = adam.update(gradient, adam_state)
        np.testing.assert_allclose(found, expected, rtol=1e-4)  # optax rounds 1 - 0.999**t elsewhere


def test_state_dtype_and_precision_of_bfloat16_parameters():
    params = jnp.ones(4, jnp.bfloat16)
    for state_dtype in ("float32", "bfloat16"):
        tx = Mars(state_dtype=state_dtype).direction()
        state = tx.init(params)
        updates, state = jax.jit(tx.update)(params, state)
        assert updates.dtype == jnp.bfloat16
        assert {leaf.dtype.name for leaf in jax.tree.leaves(state[1:])} == {state_dtype}


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"clip": "local"}, r"clip: must be 'global' or 'per_tensor', got 'local'"),
        ({"max_grad_norm": 0.0}, r"Mars\.max_grad_norm must be a finite number above 0, got 0\.0"),
        ({"beta1": 1.0}, r"Mars\.beta1 must be a finite number at least 0 and below 1, got 1\.0"),
        ({"state_dtype": "float16"}, r"Mars\.state_dtype must be one of 'float32', 'bfloat16', got 'float16'"),
    ],
)
def test_bad_values_are_named(hyper, message):
    with pytest.raises(ValueError, match=message):
        dense.build("mars", 0.1, **hyper)
