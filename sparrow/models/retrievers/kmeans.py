"""Residual k-means: centroids of vectors, then of the remainders, layer by layer; the semantic ids that they give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.norms import unit
from sparrow.models.records import register_model

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
      seed: the seed of the choice of the first rows.

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


MOST_ROWS: Final = 2**30


class Fitted(nnx.Variable[jax.Array]):
    """Values that the model fits by itself, without gradients: centroids, and the sample that they are fitted to."""


@register_model("sid_rqkmeans")
class SidRqkmeans(nnx.Module):
    """Residual k-means: each layer codes what the layers before it left over.

    ::

        r_1    = x                                          divided by its norm with normalize_residuals, in each layer
        code_l = argmin_k |r_l - c_lk|²
        r_l+1  = r_l - c_l,code_l
        reconstruction = Σ_l c_l,code_l

    Nothing is trained by gradients. A uniform sample of all rows seen is kept, and the centroids are fitted to it by
    Lloyd's iterations once it has as many rows as the largest codebook, and again each time that the number of rows
    seen has doubled: every checkpoint has centroids of the data up to then. The task has one loss, ``reconstruction``,
    whose prediction are the codes.

    >>> inputs = Inputs(acts={}, numbers={"vector": 4}, groups={"item": ["vector"]})
    >>> model = SidRqkmeans(inputs, codebook=(4, 4), rngs=nnx.Rngs(0))
    >>> x = jax.random.normal(jax.random.key(0), (8, 4))
    >>> made = model({}, {"vector": x})
    >>> {name: array.shape for name, array in made.items()}
    {'codes': (8, 2), 'reconstruction': (8, 4), 'target': (8, 4)}

    Reference: Deng et al., OneRec, 2025, arXiv 2502.18965 (residual k-means); Vitter, 1985 (the sample).

    Attributes:
      codebook: the number of centroids of each layer.
      normalize_residuals: whether rows are divided by their norms before each layer.
      iterations: the number of Lloyd's iterations of a fit.
      spherical: whether centroids have norm 1.
      sample_size: the most rows that are kept; 0: 256 for each centroid of the largest layer.
      seed: the seed of the sample and of the first centroids.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        codebook: tuple[int, ...],
        normalize_residuals: bool = False,
        iterations: int = 25,
        spherical: bool = False,
        sample_size: int = 0,
        seed: int = 1234,
        rngs: nnx.Rngs,
    ) -> None:
        self.group: Group = inputs.single("SidRqkmeans")
        self.codebook = checked_codebook("SidRqkmeans", codebook)
        fields.integer("SidRqkmeans.iterations", iterations)
        fields.integer("SidRqkmeans.sample_size", sample_size, at_least=0)
        if 0 < sample_size < max(codebook):
            raise ValueError(
                f"SidRqkmeans.sample_size must be at least {max(codebook)}, the largest codebook, got {sample_size}"
            )
        self.normalize, self.spherical = normalize_residuals, spherical
        self.iterations, self.seed = iterations, seed
        dim, size = self.group.dim, sample_size or 256 * max(codebook)
        self.centroids = nnx.List([Fitted(jnp.zeros((count, dim))) for count in codebook])
        self.sample = Fitted(jnp.zeros((size, dim)))
        self.seen = Fitted(jnp.zeros((), jnp.int32))
        self.fit_at = Fitted(jnp.array(max(codebook), jnp.int32))
        self.deterministic = False  # nnx.Module.eval sets it

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"codes": (batch, layers), "reconstruction": (batch, dim), "target": (batch, dim)}``."""
        x = self.group.concat(acts, numbers).astype(jnp.float32)
        codes, made, residual = [], jnp.zeros_like(x), x
        for centroids in self.centroids:
            residual = unit(residual) if self.normalize else residual
            codes.append(nearest(residual, centroids[...]))
            chosen = centroids[...][codes[-1]]
            made, residual = made + chosen, residual - chosen
        if not self.deterministic:
            self._learn(jax.lax.stop_gradient(x))  # after its codes: the loss is of rows that are new
        return {"codes": jnp.stack(codes, axis=1), "reconstruction": made, "target": x}

    def _learn(self, x: jax.Array) -> None:
        """Add rows to the sample, and fit the centroids to it where it is time."""
        seen, size = self.seen[...], self.sample[...].shape[0]
        places = jnp.arange(len(x))
        drawn = jax.random.randint(
            jax.random.fold_in(jax.random.key(self.seed), seen), places.shape, 0, seen + places + 1
        )
        slots = jnp.where(seen + places < size, seen + places, drawn)
        last = jnp.full(size, -1).at[slots].max(places, mode="drop")  # of several rows for a place, the last one stays
        slots = jnp.where(last.at[slots].get(mode="fill", fill_value=-1) == places, slots, size)
        sample = self.sample[...].at[slots].set(x, mode="drop")
        after = jnp.minimum(seen + len(x), MOST_ROWS)

        def fitted() -> list[jax.Array]:
            there = (jnp.arange(size) < after).astype(jnp.float32)
            options = {"normalize": self.normalize, "spherical": self.spherical}
            return residual_kmeans(sample, there, self.codebook, iterations=self.iterations, seed=self.seed, **options)

        due = after >= self.fit_at[...]
        found = jax.lax.cond(due, fitted, lambda: [centroids[...] for centroids in self.centroids])
        for centroids, value in zip(self.centroids, found, strict=True):
            centroids[...] = value
        self.sample[...], self.seen[...] = sample, after
        self.fit_at[...] = jnp.where(due, 2 * after, self.fit_at[...])


def checked_codebook(model: str, codebook: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes of the layers; raise ValueError where there are none, or one is below 1."""
    if not codebook:
        raise ValueError(f"{model}.codebook must be the sizes of the layers, such as [256, 256, 256], got {codebook!r}")
    for size in codebook:
        fields.integer(f"{model}.codebook", size)
    return tuple(codebook)
