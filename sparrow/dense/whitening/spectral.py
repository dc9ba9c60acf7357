"""The largest singular value of symmetric and skew-symmetric matrices: estimated, or exact."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

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
