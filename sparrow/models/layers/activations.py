"""Activation functions by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.registry import nearest

Activation = Callable[[jax.Array], jax.Array]


def identity(x: jax.Array) -> jax.Array:
    """``x`` itself: no activation."""
    return x


@jax.custom_vjp
def relu(x: jax.Array) -> jax.Array:
    """``max(x, 0)``, whose gradient reads the result alone.

    ``jax.nn.relu`` keeps ``x`` for its gradient, so that a GPU writes ``x`` and the result, in two kernels. Without it,
    XLA lets the matrix product before it add the bias, take the maximum, and write the result once.
    """
    return jnp.maximum(x, 0)


def _relu_forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    # Behind the barrier, XLA cannot see that the result is positive where x is, and go back to x.
    y: jax.Array = jax.lax.optimization_barrier(jnp.maximum(x, 0))  # type: ignore[no-untyped-call]
    return y, y


def _relu_backward(y: jax.Array, grad: jax.Array) -> tuple[jax.Array]:
    return (jnp.where(y > 0, grad, 0),)


relu.defvjp(_relu_forward, _relu_backward)


def gelu(x: jax.Array) -> jax.Array:
    """``x * Φ(x)``, exactly; ``jax.nn.gelu`` approximates Φ by default."""
    return jax.nn.gelu(x, approximate=False)


FUNCTIONS: Final[dict[str, Activation]] = {
    "none": identity,
    "relu": relu,
    "relu6": jax.nn.relu6,
    "leaky_relu": jax.nn.leaky_relu,
    "elu": jax.nn.elu,
    "selu": jax.nn.selu,
    "gelu": gelu,
    "silu": jax.nn.silu,
    "mish": jax.nn.mish,
    "softplus": jax.nn.softplus,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
}
LEARNED: Final = ("dice", "prelu")
ACTIVATIONS: Final = (*FUNCTIONS, *LEARNED)


class Dice(nnx.Module):
    """A smooth PReLU whose corner follows the data.

    ::

        p = sigmoid(batch normalization of x, without scale and shift)
        y = p * x + (1 - p) * alpha * x                     alpha: one per unit, learned, from 0

    >>> Dice(2, rngs=nnx.Rngs(0))(jnp.array([[0.0, 1.0], [0.0, 3.0]]))
    Array([[0.        , 0.268...],
           [0.        , 2.193...]], dtype=float32)

    Reference: Zhou et al., Deep Interest Network, 2018, arXiv 1706.06978.
    """

    def __init__(self, dim: int, *, rngs: nnx.Rngs) -> None:
        self.norm = nnx.BatchNorm(dim, momentum=0.9, use_scale=False, use_bias=False, rngs=rngs)
        self.alpha = nnx.Param(jnp.zeros(dim))

    def __call__(self, x: jax.Array) -> jax.Array:
        p = jax.nn.sigmoid(self.norm(x)).astype(x.dtype)
        return p * x + (1 - p) * self.alpha[...] * x


def check_activation(name: str, where: str) -> None:
    """Raise unless ``name`` is one of ``ACTIVATIONS``."""
    if name not in ACTIVATIONS:
        raise ValueError(f"{where}: unknown activation '{name}': {nearest(str(name), ACTIVATIONS)}")


def make_activation(name: str, dim: int, rngs: nnx.Rngs) -> Activation:
    """Return the activation ``name`` for ``dim`` units: a function, or a module where it has parameters."""
    if name == "dice":
        return Dice(dim, rngs=rngs)
    if name == "prelu":
        return nnx.PReLU(negative_slope_init=0.25)
    return FUNCTIONS[name]
