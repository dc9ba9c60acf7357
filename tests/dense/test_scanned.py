"""Stacks of layers under quad and skew: the numbers of separate layers, on one device and on a mesh."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import dense

ROOT = Path(__file__).parents[2]


def run(tx, params, grads):
    def step(carry, grads):
        params, state = carry
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    return jax.jit(lambda params: jax.lax.scan(step, (params, tx.init(params)), grads)[0])(params)


def stack_and_gradients(shape, steps=6):
    random = np.random.RandomState(0)
    scales = np.array([1.0, 10.0, 0.1], np.float32).reshape(-1, *[1] * (len(shape) - 1))  # layers far apart
    params = jnp.asarray(random.normal(size=shape), jnp.float32)
    return params, jnp.asarray(random.normal(size=(steps, *shape)) * scales, jnp.float32)


CASES = [
    ("quad", (3, 8, 8), {}),
    ("quad", (3, 5), {"normalize_grads": True}),
    pytest.param("quad", (3, 4, 2, 6), {"block_size": 3}, marks=pytest.mark.slow),
    pytest.param("quad", (3,), {}, marks=pytest.mark.slow),
    pytest.param("skew", (3, 8, 8), {"normalize_grads": True}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "shape", "hyper"), CASES)
def test_a_stack_is_its_layers(name, shape, hyper):
    stack, grads = stack_and_gradients(shape)
    beside = {"stack": stack, "other": stack}  # the same leaf, not marked: one tensor
    scanned = {"stack": True, "other": False}
    tx, _ = dense.build(name, 0.1, scanned_layers=scanned, noise_scale=0.0, **hyper)
    found, _ = run(tx, beside, {"stack": grads, "other": grads})
    plain, _ = dense.build(name, 0.1, noise_scale=0.0, **hyper)
    layers, _ = run(plain, list(stack), [grads[:, i] for i in range(3)])
    np.testing.assert_allclose(found["stack"], jnp.stack(layers), rtol=0, atol=1e-6)
    assert float(jnp.abs(found["other"] - found["stack"]).max()) > 0.01


def test_layers_are_chosen_by_patterns_or_a_function():
    stack, grads = stack_and_gradients((3, 2, 2), steps=2)
    results = [
        run(dense.build("quad", 0.1, scanned_layers=given)[0], {"layers": {"w": stack}}, {"layers": {"w": grads}})[0]
        for given in (r"layers/.*", ["layers/w"], lambda params: jax.tree.map(lambda _: True, params))
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0]["layers"]["w"], other["layers"]["w"])


@pytest.mark.parametrize(
    ("hyper", "message"),
    [
        ({"scanned_layers": {"v": True}}, r"scanned_layers has no leaf 'w'"),
        ({"scanned_layers": {"w": 1}}, r"scanned_layers must hold True or False for 'w', got 1"),
        ({"scanned_layers": r"x"}, r"pattern 'x' fully matches none of the names: w"),
        ({"pipeline_axis_size": 2}, r"pipeline_axis_size is 2, but there is no pipeline_axis_name"),
        ({"pipeline_axis_name": "stage", "pipeline_axis_size": 2}, r"names the mesh axis 'stage'.*there is none"),
    ],
)
def test_bad_choices_are_named(hyper, message):
    with pytest.raises(ValueError, match=message):
        dense.build("quad", 0.1, **hyper)[0].init({"w": jnp.ones((2, 3))})
    with pytest.raises(ValueError, match="a scalar and has no axis of layers"):
        dense.build("quad", 0.1, scanned_layers=True)[0].init(jnp.ones(()))


@pytest.mark.slow
def test_the_same_on_a_mesh():
    """Factors in two parts, momentum and updates as the parameters lie, over meshes of both kinds."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    program = [sys.executable, Path(__file__).with_name("scanned_on_mesh.py")]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for case, found in json.loads(done.stdout).items():
        assert found["moved"] > 0.01, case
        assert found["params"] <= 2e-6, case
        assert found["factors"] == ["stage"], case
        assert found["shard"] == [3, 8, 8], case  # of five blocks, filled up to six
        assert found["momentum"] == [5, 4, 8], case
