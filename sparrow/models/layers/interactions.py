"""How the vectors of several features meet: factorization machine and pairwise dot products."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from sparrow import kernels


def factorization_machine(vectors: jax.Array) -> jax.Array:
    """Return the sum over all pairs of features of the element-wise product, in linear time.

    ::

        out = ((Σ_i v_i)² - Σ_i v_i²) / 2 = Σ_{i<j} v_i * v_j

    Args:
      vectors: ``(batch, features, dim)``.

    Returns:
      ``(batch, dim)``, float32: the two sums nearly cancel, and lower precision would keep little of the difference.

    >>> factorization_machine(jnp.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))
    Array([[23., 44.]], dtype=float32)

    Reference: Rendle, Factorization Machines, ICDM 2010.
    """
    vectors = vectors.astype(jnp.float32)
    return 0.5 * (jnp.square(vectors.sum(axis=1)) - jnp.square(vectors).sum(axis=1))


def pairwise_dots(vectors: jax.Array, more: jax.Array | None = None) -> jax.Array:
    """``out[b] = [<v_i, v_j> for i < j]``, the pairs in order of i, then j.

    Args:
      vectors: ``(batch, features, dim)``.
      more: further vectors of the same examples, after ``vectors``: the same as concatenating both on axis 1, without
        the copy where an NVIDIA GPU multiplies 16-bit numbers.

    Returns:
      ``(batch, pairs)``, of n vectors n * (n - 1) / 2 pairs.

    >>> pairwise_dots(jnp.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))
    Array([[11., 17., 39.]], dtype=float32)

    Reference: Naumov et al., 2019, arXiv 1906.00091.
    """
    return kernels.pairwise_dots(vectors, more)
