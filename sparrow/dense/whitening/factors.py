"""The two factors of a block: start values, how they multiply a gradient, how one side moves.

A block ``G`` of ``m x n`` is preconditioned by ``Ql`` (``m x m``) and ``Qr`` (``n x n``), or by their diagonals::

    U = Qlᵀ Ql G Qrᵀ Qr

The factors are right when ``U`` is white: the mean of ``U Uᵀ`` is ``n I`` and that of ``Uᵀ U`` is ``m I``.
Every array here has the blocks of one parameter as its first axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.dense.whitening.layout import Side

if TYPE_CHECKING:
    from sparrow.dense.whitening.optimizers import Whitening


def initial_factor(side: Side, valid: Any, scale: Any, dtype: Any) -> jax.Array:
    """``scale`` times the identity, zero on padding; ``valid`` holds each block's entries that are not padding."""
    diagonal = jnp.where(jnp.arange(side.block) < jnp.asarray(valid)[:, None], scale, 0.0)
    return (diagonal[:, :, None] * jnp.eye(side.block) if side.dense else diagonal).astype(dtype)


def precondition(left: jax.Array, right: jax.Array, blocks: jax.Array, dtype: Any) -> jax.Array:
    """``Qlᵀ Ql G Qrᵀ Qr`` of each block."""
    if left.ndim == 3:
        blocks = matmul(left.mT, matmul(left, blocks, dtype), dtype)
    else:
        blocks = jnp.square(left)[:, :, None] * blocks
    if right.ndim == 3:
        return matmul(matmul(blocks, right.mT, dtype), right, dtype)
    return blocks * jnp.square(right)[:, None, :]


def balance(left: jax.Array, right: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the same product of the two factors, with the same largest entry in both."""

    def largest(factor: jax.Array) -> jax.Array:
        return jnp.max(jnp.abs(factor), axis=tuple(range(1, factor.ndim)), keepdims=True)

    ratio = jnp.sqrt(divide_or_zero(largest(right).ravel(), largest(left).ravel()))
    ratio = jnp.where(ratio > 0, ratio, 1.0)

    def scaled(factor: jax.Array, by: jax.Array) -> jax.Array:
        return factor * by.reshape(-1, *[1] * (factor.ndim - 1))

    return scaled(left, ratio), scaled(right, 1.0 / ratio)


def move_side(
    options: Whitening,
    factor: jax.Array,
    bound: jax.Array,
    whitened: jax.Array,
    target: jax.Array,
    *,
    rate: jax.Array,
    limit: float,
) -> tuple[jax.Array, jax.Array]:
    """One step of the factor of one side, and of its Lipschitz bound ``L``.

    Args:
        options: how the factor moves, and the decay of the bound.
        factor: ``Q`` of every block, (blocks, n, n) or (blocks, n), float32.
        bound: ``L`` of every block, (blocks,), float32.
        whitened: ``A``, the preconditioned gradient, this side's axis first: (blocks, n, other side).
        target: ``s``, what ``A Aᵀ`` should have on its diagonal: the valid length of the other side, (blocks,).
        rate: ``eta``, how far to move.
        limit: the largest diagonal entry that ``Q`` may grow to.

    ``T = A Aᵀ``, ``ell = |T| + s``, ``L = max(betaL L + (1 - betaL) ell, ell)``, ``E = T - s I``.

    ``-s`` is what makes ``Q`` grow, and without a gradient it would grow for ever. So it is left out of a block whose
    gradient is zero, and of the coordinates that have reached ``limit``.
    """
    energy = jnp.sum(jnp.square(whitened), axis=2)  # the diagonal of T
    diagonal = jnp.diagonal(factor, axis1=1, axis2=2) if factor.ndim == 3 else factor
    may_grow = (diagonal < limit) & jnp.any(energy > 0, axis=1, keepdims=True)
    wanted = jnp.where(may_grow, target[:, None], 0.0)
    if factor.ndim == 3:
        second_moment = matmul(whitened, whitened.mT, options.array_dtype)
        size = spectral_norm(second_moment, options.norm, options.array_dtype)
    else:
        size = jnp.max(energy, axis=1)
    ell = size + target
    bound = jnp.maximum(options.betaL * bound + (1 - options.betaL) * ell, ell)
    rate = divide_or_zero(rate, bound)  # a block that is all padding has no bound
    if factor.ndim == 3:
        excess = second_moment - wanted[:, :, None] * jnp.eye(wanted.shape[1])
        return options.moved(factor, excess, rate[:, None, None]), bound
    return options.moved_diagonal(factor, energy - wanted, rate[:, None]), bound


Norm = Literal["estimate", "exact"]

_STARTS = 4
_ITERATIONS = 5
_TINY = float(np.finfo(np.float32).tiny)


def matmul(a: jax.Array, b: jax.Array, dtype: Any = jnp.float32) -> jax.Array:
    """Return ``a @ b`` with operands in ``dtype`` and sums in float32 (never in TF32 when ``dtype`` is float32)."""
    precision = jax.lax.Precision.HIGHEST if jnp.dtype(dtype) == jnp.float32 else None
    return jnp.matmul(a.astype(dtype), b.astype(dtype), precision=precision, preferred_element_type=jnp.float32)


def divide_or_zero(a: jax.Array, b: jax.Array) -> jax.Array:
    """Return ``a / b`` where ``b`` is not negligible, else 0."""
    usable = jnp.abs(b) > _TINY
    return jnp.where(usable, a / jnp.where(usable, b, 1.0), 0.0)


def _start_vectors(size: int) -> np.ndarray:
    """Return a fixed table of Gaussian vectors: as good a start as fresh ones, and the same numbers in every run."""
    return np.random.RandomState(0).standard_normal((_STARTS, size)).astype(np.float32)


def spectral_norm(matrices: jax.Array, norm: Norm, dtype: Any = jnp.float32) -> jax.Array:
    """Return the spectral norm of each of a batch of (skew-)symmetric matrices: ``(blocks, n, n) -> (blocks,)``.

    "estimate" is a lower bound by power iteration from a few fixed vectors, each leaning towards the row with
    the most energy: ``V <- V M; V <- V / |V|; V <- V M``, and the answer is the largest ``|V|``. A zero matrix
    gives 0. "exact" takes eigenvalues: slow, for tests.

    >>> matrix = jnp.diag(jnp.array([1.0, 5.0, 2.0]))[None]
    >>> float(spectral_norm(matrix, "exact")[0])
    5.0
    >>> bool(4.99 < spectral_norm(matrix, "estimate")[0] <= 5.00001)
    True
    """
    scale = jnp.max(jnp.abs(matrices), axis=(1, 2), keepdims=True)
    unit = divide_or_zero(matrices, scale)  # so that squares neither overflow nor vanish
    if norm == "exact":
        largest = jnp.linalg.eigvalsh(matmul(unit, unit.mT))[:, -1]
        return jnp.sqrt(jnp.maximum(largest, 0.0)) * scale[:, 0, 0]

    energy = jnp.sum(unit * unit, axis=2)
    heaviest = jnp.take_along_axis(unit, jnp.argmax(energy, axis=1)[:, None, None], axis=1)  # (blocks, 1, n)
    starts = jnp.asarray(_start_vectors(matrices.shape[2]))  # (starts, n)
    leaning = jnp.sum(starts * heaviest, axis=2, keepdims=True)
    vectors = heaviest + jnp.where(leaning < 0, -starts, starts)  # (blocks, starts, n)

    def twice(_: int, vectors: jax.Array) -> jax.Array:
        vectors = matmul(vectors, unit, dtype)
        vectors = divide_or_zero(vectors, jnp.linalg.norm(vectors, axis=2, keepdims=True))
        return matmul(vectors, unit, dtype)

    vectors = jax.lax.fori_loop(0, _ITERATIONS, twice, vectors)
    return jnp.max(jnp.linalg.norm(vectors, axis=2), axis=1) * scale[:, 0, 0]
