"""Vectors of one dim that meet each other: those of a group of features, and one made of numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP


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
