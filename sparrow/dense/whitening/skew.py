"""skew: the factor moves from one side only, and a rotation brings it back to symmetric."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sparrow.dense.registry import register_optimizer
from sparrow.dense.whitening.factors import FactorRule, Norm, divide_or_zero, matmul, spectral_norm
from sparrow.dense.whitening.options import Whitening
from sparrow.dense.whitening.transform import scale_by_whitening

_MAX_ANGLE = 1 / 8


def procrustes_step(factor: jax.Array, norm: Norm, dtype: Any) -> jax.Array:
    """Rotates each ``Q`` of (blocks, n, n) one step towards its symmetric, positive form.

    ``R = Qᵀ - Q`` generates the rotation that raises the trace of ``Q`` fastest. To second order in the angle::

        Q + a (R Q + a/2 R R Q),   a = min(1/8 / |R|, -tr(R Q) / tr(R R Q))

    where the second term of the minimum, the top of the parabola, counts only if the parabola has a top.
    A symmetric ``Q`` does not move.
    """
    skew = factor.mT - factor
    skew = divide_or_zero(skew, jnp.max(jnp.abs(skew), axis=(1, 2), keepdims=True))
    first = matmul(skew, factor, dtype)
    second = matmul(skew, first, dtype)
    slope, curvature = (jnp.trace(matrix, axis1=1, axis2=2) for matrix in (first, second))
    angle = divide_or_zero(jnp.full_like(slope, _MAX_ANGLE), spectral_norm(skew, norm, dtype))
    top = divide_or_zero(-slope, curvature)
    angle = jnp.where(curvature < 0, jnp.minimum(angle, top), angle)
    angle = jnp.where(slope > 0, angle, 0.0)[:, None, None]
    return factor + angle * (first + angle / 2 * second)


def skew_dense(factor: jax.Array, excess: jax.Array, rate: jax.Array, norm: Norm, dtype: Any) -> jax.Array:
    """``(I - z E) Q`` with ``z = rate``, then a Procrustes step."""
    return procrustes_step(factor - rate * matmul(excess, factor, dtype), norm, dtype)


def skew_diagonal(factor: jax.Array, excess: jax.Array, rate: jax.Array) -> jax.Array:
    """``q (1 - z e)`` with ``z = rate``."""
    return factor * (1 - rate * excess)


SKEW = FactorRule(skew_dense, skew_diagonal)


@register_optimizer("skew")
@dataclasses.dataclass(frozen=True)
class Skew(Whitening):
    """Kronecker-factored whitening (PSGD) whose factors move from one side and are rotated back to symmetric.

    As `Quad` in everything but the move of a factor::

        Q = (I - z E) Q,   z = eta / L;   then one Procrustes step, see `procrustes_step`

    One matrix product less for each factor, at the price of a factor that is only nearly symmetric.

    >>> import jax, jax.numpy as jnp, optax
    >>> tx = Skew(block_size=16).build(optax.constant_schedule(0.1))
    >>> params = jnp.array([[1.0, -2.0], [3.0, -1.0], [0.5, 1.0]])
    >>> state, update = tx.init(params), jax.jit(tx.update)
    >>> for _ in range(300):
    ...     updates, state = update(2 * params, state)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(jnp.abs(params).max() < 0.1)
    True

    References:
        Xi-Lin Li, `Stochastic Hessian fittings with Lie groups <https://arxiv.org/abs/2402.11858>`_.
    """

    def direction(self) -> optax.GradientTransformation:
        return scale_by_whitening(SKEW, self)
