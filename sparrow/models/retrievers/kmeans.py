"""Residual k-means: centroids of vectors, then of the remainders, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import jax
import jax.numpy as jnp

from sparrow.models.retrievers.matching import unit

BLOCK: Final = 4096
"""Rows whose distances to all centroids are held at once."""


def distances(x: jax.Array, centroids: jax.Array) -> jax.Array:
    """Return the squared distances of rows to centroids, ``(rows, centroids)``, in float32."""
    dots = jnp.matmul(x, centroids.T, precision="highest")
    return jnp.square(x).sum(axis=1, keepdims=True) - 2 * dots + jnp.square(centroids).sum(axis=1)


def kmeans(x: jax.Array, weights: jax.Array, count: int, *, iterations: int, spherical: bool, seed: int) -> jax.Array:
    """Return ``(count, dim)`` centroids by Lloyd's iterations, from ``count`` random rows on.

    ::

        code_i = argmin_k |x_i - c_k|²
        c_k    = mean of the rows of code k          divided by its norm with spherical

    A centroid without rows moves to one of the rows that are farthest from theirs.

    Args:
      x: ``(rows, dim)``, float32.
      weights: ``(rows,)``, 1 for a row and 0 for padding; at least ``count`` of them are 1.
      count: the number of centroids.
      iterations: the number of steps.
      spherical: whether centroids have norm 1.
      seed: of the choice of the first rows.

    >>> made = kmeans(jnp.array([[0.0], [1.0], [9.0], [11.0]]), jnp.ones(4), 2, iterations=5, spherical=False, seed=0)
    >>> sorted(made[:, 0].tolist())
    [0.5, 10.0]
    """
    first = jax.lax.top_k(jnp.where(weights > 0, jax.random.uniform(jax.random.key(seed), weights.shape), -1), count)[1]
    block = min(BLOCK, len(x))
    blocks = -(-len(x) // block)
    padding = blocks * block - len(x)
    rows = jnp.pad(x, ((0, padding), (0, 0))).reshape(blocks, block, -1)
    there = jnp.pad(weights, (0, padding)).reshape(blocks, block)

    def step(_: int, centroids: jax.Array) -> jax.Array:
        def add(
            sums: tuple[jax.Array, jax.Array], part: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            far = distances(part[0], centroids)
            # A product with one-hot codes: sums in one order on every device, unlike a scatter on a GPU.
            chosen = jax.nn.one_hot(far.argmin(axis=1), count) * part[1][:, None]
            total = sums[0] + jnp.matmul(chosen.T, part[0], precision="highest")
            return (total, sums[1] + chosen.sum(axis=0)), jnp.where(part[1] > 0, far.min(axis=1), -1)

        (total, sizes), errors = jax.lax.scan(add, (jnp.zeros_like(centroids), jnp.zeros(count)), (rows, there))
        farthest = x[jax.lax.top_k(errors.reshape(-1)[: len(x)], count)[1]]
        empty = sizes == 0
        made = total / jnp.where(empty, 1, sizes)[:, None]
        made = jnp.where(empty[:, None], farthest[jnp.cumsum(empty) - 1], made)
        return unit(made) if spherical else made

    made: jax.Array = jax.lax.fori_loop(0, iterations, step, unit(x[first]) if spherical else x[first])
    return made


def residual_kmeans(
    x: jax.Array,
    weights: jax.Array,
    counts: Sequence[int],
    *,
    iterations: int,
    normalize: bool = False,
    spherical: bool = False,
    seed: int = 0,
) -> list[jax.Array]:
    """Return the centroids of each layer: `kmeans` of the rows, then of the rows less their centroids, and so on.

    ``normalize``: whether each layer divides its rows by their norms first.
    """
    made = []
    for layer, count in enumerate(counts):
        x = unit(x) if normalize else x
        made.append(kmeans(x, weights, count, iterations=iterations, spherical=spherical, seed=seed + layer))
        x = x - made[-1][nearest(x, made[-1])]
    return made


def nearest(x: jax.Array, centroids: jax.Array) -> jax.Array:
    """Return the nearest centroid of each row, ``(rows,)`` int32, in blocks where there are many rows."""
    if not isinstance(x.shape[0], int) or len(x) <= BLOCK:  # an exported model has no number here
        return distances(x, centroids).argmin(axis=1).astype(jnp.int32)
    found: jax.Array = jax.lax.map(lambda row: distances(row[None], centroids)[0].argmin(), x, batch_size=BLOCK)
    return found.astype(jnp.int32)
