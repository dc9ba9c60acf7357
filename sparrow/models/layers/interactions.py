"""How the vectors of several features meet, and the one that is made of numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import kernels
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP


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


class Vectors(nnx.Module):
    """``dense MLP(features of the group "dense", side by side)`` where there is one, then the vectors of a group.

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, numbers={"age": 1},
    ...                 groups={"sparse": ["user", "item"], "dense": ["age"]})
    >>> vectors = Vectors("DLRM", inputs, "sparse", MLP((16, 8)), rngs=nnx.Rngs(0))
    >>> vectors({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {"age": jnp.ones((4, 1))}).shape
    (4, 3, 8)

    Attributes:
      count: the number of vectors.
      dim: their length.
    """

    def __init__(self, model: str, inputs: Inputs, sparse: str, dense_mlp: MLP | None, *, rngs: nnx.Rngs) -> None:
        inputs.check(model, required=(sparse,), optional=("dense",))
        self.sparse: Group = inputs.vectors(sparse)
        self.dense: Group | None = inputs.group("dense") if sparse != "dense" and "dense" in inputs.groups else None
        self.dim = self.sparse.dims[0]
        if (self.dense is None) != (dense_mlp is None):
            given, missing = ("dense_mlp", "the group 'dense'") if dense_mlp else ("the group 'dense'", "dense_mlp")
            raise ValueError(f"{model} was given {given} without {missing}; give both or neither")
        if dense_mlp is not None and dense_mlp.dim != self.dim:
            raise ValueError(
                f"{model}.dense_mlp must end in {self.dim} units, the dim of the group '{sparse}', "
                f"got {dense_mlp.hidden_units}"
            )
        self.count = len(self.sparse.names) + (self.dense is not None)
        self.dense_mlp = nnx.data(None)
        if self.dense is not None and dense_mlp is not None:
            self.dense_mlp = dense_mlp.build(self.dense.dim, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return jnp.concatenate(self.parts(acts, numbers), axis=1)

    def parts(self, acts: Arrays, numbers: Arrays) -> list[jax.Array]:
        """Return the vector of the numbers, where there is one, and those of the group: ``(batch, 1 or n, dim)``."""
        sparse = self.sparse.stack(acts)
        if self.dense is None or self.dense_mlp is None:
            return [sparse]
        return [self.dense_mlp(self.dense.concat(acts, numbers))[:, None], sparse]
