"""Jagged attention on a GPU, against the reference in float32; elsewhere its kernels compile."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import cuda
from sparrow.kernels.attention.cuda import deltas
from sparrow.kernels.cuda import nvrtc, source

from . import statement
from .test_attention import call, given

ZERO = 2e-4
"""The bound of gradients that are 0: `test_the_gradient_of_a_token_that_sees_itself` has the arithmetic."""
CASES = statement.CASES[:-1]


@pytest.mark.skipif(nvrtc.unavailable() is not None, reason="NVRTC is not installed")
@pytest.mark.parametrize(("arch", "hopper"), [("sm_80", False), ("sm_90a", True), ("sm_100", False)])
def test_compiles_without_a_gpu(arch, hopper):
    modules = [
        source.attention_work_module(),
        source.attention_module(64, 2, source.PLACES, not hopper, hopper),
        source.attention_module(128, 2, source.PLACES, softmax=False, hopper=hopper, inner=True),
        source.norm_module(512, "bfloat16", gated=True),
        *([source.project_module(256, 512)] if hopper else []),
        source.attention_module(64, 1, source.CAUSAL, softmax=hopper, buckets=(128, 64)),
        source.attention_float_module(128, 1, source.SEMI_LOCAL, softmax=hopper, buckets=(128, 64)),
    ]
    for module in modules:
        image = nvrtc.compile_cubin(module.source, nvrtc.options(arch, module.macros))
        assert all(kernel.encode() in image for kernel in module.kernels)


@pytest.mark.skipif(cuda.unavailable() is not None, reason="tensor instructions need a GPU")
@pytest.mark.parametrize("score", ["silu", "softmax"])
@pytest.mark.parametrize("dim", [24, 64, 128])
@pytest.mark.parametrize(("dtype", "bound"), [("bfloat16", 6e-3), ("float32", 1e-5)])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_against_the_reference(case, dim, score, dtype, bound):
    check(case, dim, score, dtype, bound)


def check(case, dim, score, dtype="bfloat16", bound=6e-3):
    """Compare result and gradients with those of the reference in float32 (which agrees with float64), twice."""
    case = dataclasses.replace(case, dim=dim, width=dim)
    arrays = given(case, dtype)
    exact = {name: jnp.asarray(value, jnp.float32) for name, value in arrays.items()}
    with jax.default_matmul_precision("highest"):
        want, reference = jax.vjp(lambda x: call(case, score, "xla", x), exact)
    weights = jnp.asarray(np.random.default_rng(1).normal(size=want.shape), dtype)
    runs = []
    for _ in range(2):
        out, pullback = jax.vjp(jax.jit(lambda x: call(case, score, "cuda", x)), arrays)
        runs.append([np.asarray(x, np.float64) for x in jax.tree.leaves((out, pullback(weights)))])
    for one, two in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, two)
    with jax.default_matmul_precision("highest"):
        expected = [want, *jax.tree.leaves(reference(weights.astype(jnp.float32)))]
    sizes = [float(np.linalg.norm(np.asarray(right))) for right in expected]
    # Where each token sees itself alone, the gradients of a softmax in q and k are 0: they are judged beside that in v.
    is_zero = score == "softmax" and str(case) == "itself"
    errors = [
        float(np.linalg.norm(got - np.asarray(right))) / (max(sizes[1:]) if is_zero else size or 1)
        for got, right, size in zip(runs[0], expected, sizes, strict=True)
    ]
    bounds = [min(ZERO, bound) if is_zero and at in (1, 2) else bound for at in range(len(errors))]
    assert all(error < most for error, most in zip(errors, bounds, strict=True)), errors
    return errors


def test_the_gradient_of_a_token_that_sees_itself():
    """The kernels' arithmetic by hand: the weight is 1, the result is scale v in two parts of 16 bits."""
    rng, scale, dim = np.random.default_rng(0), 0.37, 64
    v, k, grads = (jnp.asarray(rng.normal(size=(200, 2, dim)), jnp.bfloat16) for _ in range(3))
    exact = scale * v.astype(jnp.float32)
    out = exact.astype(jnp.bfloat16)
    rest = (exact - out.astype(jnp.float32)).astype(jnp.bfloat16)

    def of_q(delta):
        seen = scale * (grads.astype(jnp.float32) * v.astype(jnp.float32)).sum(axis=2) - delta
        made = dim**-0.5 * seen.astype(jnp.bfloat16).astype(jnp.float32)[..., None] * k.astype(jnp.float32)
        return float(np.linalg.norm(made) / np.linalg.norm(scale * grads.astype(jnp.float32)))

    assert of_q(deltas(grads, out, rest)) < ZERO / 4
    assert of_q(deltas(grads, out, jnp.zeros_like(rest))) > 4 * ZERO
