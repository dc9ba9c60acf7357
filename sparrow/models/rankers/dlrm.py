"""DLRM: dot products between all pairs of embeddings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.layers.interactions import Vectors, pairwise_dots
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model


@register_model("dlrm", is_per_example=True)
class DLRM(nnx.Module):
    """Numbers become one more vector, all vectors meet in pairs, and a network reads the dot products.

    ::

        dense  = dense MLP(features of the group "dense", side by side)
        dots   = [<v_i, v_j> for i < j]                 over dense and the vectors of the group "sparse"
        logits = linear(final MLP([dots, dense, vectors of the group "sparse"]))

    Without a group "dense" there is no ``dense``; without ``arch_with_sparse`` the vectors themselves are left out, as
    in the paper.

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, numbers={"age": 1},
    ...                 groups={"sparse": ["user", "item"], "dense": ["age"]})
    >>> model = DLRM(inputs, dense_mlp=MLP((16, 8)), final=MLP((16,)), rngs=nnx.Rngs(0))
    >>> model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {"age": jnp.ones((4, 1))})["logits"].shape
    (4,)

    Reference: Naumov et al., 2019, arXiv 1906.00091.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        final: MLP,
        dense_mlp: MLP | None = None,
        arch_with_sparse: bool = True,
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        fields.integer("DLRM: num_classes", num_classes)
        self.vectors = Vectors("DLRM", inputs, "sparse", dense_mlp, rngs=rngs)
        self.arch_with_sparse, self.has_dense = arch_with_sparse, dense_mlp is not None
        count, dim = self.vectors.count, self.vectors.dim
        width = count * (count - 1) // 2 + dim * (count if arch_with_sparse else self.has_dense)
        if not width:
            raise ValueError(
                "DLRM has one vector and so no pair: add a feature to the group 'sparse', or a group 'dense', "
                "or arch_with_sparse"
            )
        self.logits = Logits(width, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        vectors = self.vectors.parts(acts, numbers)  # the vector of the numbers first
        parts = [pairwise_dots(*vectors)]
        if self.arch_with_sparse:
            parts += [part.reshape(part.shape[0], -1) for part in vectors]
        elif self.has_dense:
            parts.append(vectors[0][:, 0])
        return {"logits": self.logits(jnp.concatenate(parts, axis=1))}
