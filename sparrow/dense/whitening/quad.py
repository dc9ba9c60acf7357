"""QUAD: the factor moves by a quadratic form, and so stays symmetric and positive."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from sparrow.dense.registry import register_optimizer
from sparrow.dense.whitening.factors import FactorRule, Norm, matmul
from sparrow.dense.whitening.options import Whitening
from sparrow.dense.whitening.transform import scale_by_whitening


def quad_dense(factor: jax.Array, excess: jax.Array, rate: jax.Array, norm: Norm, dtype: Any) -> jax.Array:
    """``(I - z E) Q (I - z E)`` with ``z = rate / 2``, made exactly symmetric."""
    del norm
    z = rate / 2
    moved = factor - z * matmul(excess, factor, dtype)
    moved = moved - z * matmul(moved, excess, dtype)
    return (moved + moved.mT) / 2


def quad_diagonal(factor: jax.Array, excess: jax.Array, rate: jax.Array) -> jax.Array:
    """``q (1 - z e)²`` with ``z = rate / 2``."""
    return factor * jnp.square(1 - rate / 2 * excess)


QUAD = FactorRule(quad_dense, quad_diagonal)


@register_optimizer("quad")
@dataclasses.dataclass(frozen=True)
class Quad(Whitening):
    """Kronecker-factored whitening (PSGD) whose factors move by a quadratic form.

    For each parameter, reshaped to blocks ``G`` of ``m x n`` with factors ``Ql, Qr`` (identity at first) and
    bounds ``Ll, Lr`` (zero at first), at step ``t``::

        mu  = beta1 mu + (1 - beta1) grad;   G = mu / (1 - beta1^t)
        eta = max(preconditioner_lr / sqrt(1 + t / 10000), preconditioner_lr_floor)
        A   = Qlᵀ Ql (G + noise) Qrᵀ Qr
        left side:  T = A Aᵀ, s = n;     right side: T = Aᵀ A, s = m
        L   = max(betaL L + (1 - betaL) (|T| + s), |T| + s)
        Q   = (I - z E) Q (I - z E),     E = T - s I,   z = eta / (2 L)
        U   = Qlᵀ Ql G Qrᵀ Qr            with the new factors
        direction = U min(1, 1.1 / rms(U)) / 5

    The division by 5 is ``lr_style="adam"``. A diagonal factor (``max_size_dense``, vectors) keeps only the
    diagonal of ``E``. Every 100 steps the two factors are given the same largest entry. Factors do not grow while
    the gradient is zero, nor beyond an amplification of 1e12. There is no weight decay of its own;
    `dense.build` adds it.

    >>> import jax, jax.numpy as jnp, optax
    >>> tx = Quad(block_size=16).build(optax.constant_schedule(0.1))
    >>> params = jnp.array([[1.0, -2.0], [3.0, -1.0], [0.5, 1.0]])
    >>> state, update = tx.init(params), jax.jit(tx.update)
    >>> for _ in range(300):
    ...     updates, state = update(2 * params, state)
    ...     params = optax.apply_updates(params, updates)
    >>> bool(jnp.abs(params).max() < 0.1)
    True

    References:
        Xi-Lin Li, `Preconditioned stochastic gradient descent <https://arxiv.org/abs/1512.04202>`_ and
        `Stochastic Hessian fittings with Lie groups <https://arxiv.org/abs/2402.11858>`_.
    """

    def direction(self) -> optax.GradientTransformation:
        return scale_by_whitening(QUAD, self)
