"""Semantic ids by residual k-means: an item's vector becomes a few integers."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.records import register_model
from sparrow.models.retrievers.kmeans import nearest, residual_kmeans
from sparrow.models.retrievers.matching import unit

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
        last = (
            jnp.full(size, -1).at[slots].max(places, mode="drop")
        )  # of several rows for one place, the last one stays
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
