"""How the vectors of several features meet: factorisation machine and pairwise dot products."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


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


def pairwise_dots(vectors: jax.Array) -> jax.Array:
    """``out[b] = [<v_i, v_j> for i < j]``, the pairs in order of i, then j.

    Args:
      vectors: ``(batch, features, dim)``.

    Returns:
      ``(batch, features * (features - 1) / 2)``.

    >>> pairwise_dots(jnp.array([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]))
    Array([[11., 17., 39.]], dtype=float32)

    Reference: Naumov et al., 2019, arXiv 1906.00091.
    """
    return _dots(vectors)


@jax.custom_vjp
def _dots(vectors: jax.Array) -> jax.Array:
    first, second = np.triu_indices(vectors.shape[1], k=1)
    return jnp.einsum("bid,bjd->bij", vectors, vectors)[:, first, second]


def _forward(vectors: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _dots(vectors), vectors


def _backward(vectors: jax.Array, grad: jax.Array) -> tuple[jax.Array]:
    """``grad v_i = Σ_j grad of the pair {i, j} * v_j``.

    JAX would scatter the pairs' gradients into a matrix, which a CPU does one number at a time; reading them from
    where they are is several times faster.
    """
    features = vectors.shape[1]
    first, second = np.triu_indices(features, k=1)
    pair = np.full((features, features), len(first))  # the diagonal reads the zero that is put behind the pairs
    pair[first, second] = pair[second, first] = np.arange(len(first))
    of_pair = jnp.pad(grad, ((0, 0), (0, 1)))[:, pair]  # (batch, features, features)
    return (jnp.einsum("bij,bjd->bid", of_pair, vectors),)


_dots.defvjp(_forward, _backward)
