"""DLRM: dot products between all pairs of embeddings."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.interactions import pairwise_dots
from sparrow.models.mlp import MLP
from sparrow.models.records import register_model
from sparrow.models.towers import Logits


@register_model("dlrm")
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
        inputs.check("DLRM", required=("sparse",), optional=("dense",))
        fields.integer("DLRM: num_classes", num_classes)
        self.sparse: Group = inputs.vectors("sparse")
        self.dense: Group | None = inputs.group("dense") if "dense" in inputs.groups else None
        dim = self.sparse.dims[0]
        if (self.dense is None) != (dense_mlp is None):
            given, missing = ("dense_mlp", "the group 'dense'") if dense_mlp else ("the group 'dense'", "dense_mlp")
            raise ValueError(f"DLRM was given {given} without {missing}; give both or neither")
        if dense_mlp is not None and dense_mlp.dim != dim:
            raise ValueError(
                f"DLRM.dense_mlp must end in {dim} units, the dim of the group 'sparse', got {dense_mlp.hidden_units}"
            )
        self.arch_with_sparse = arch_with_sparse
        self.dense_mlp = nnx.data(None)
        if self.dense is not None and dense_mlp is not None:
            self.dense_mlp = dense_mlp.build(self.dense.dim, rngs=rngs)
        vectors = len(self.sparse.names) + (dense_mlp is not None)
        width = vectors * (vectors - 1) // 2 + (dim if dense_mlp else 0) + (self.sparse.dim if arch_with_sparse else 0)
        if not width:
            raise ValueError(
                "DLRM has one vector and so no pair: add a feature to the group 'sparse', or a group 'dense', "
                "or arch_with_sparse"
            )
        self.logits = Logits(width, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"logits": (batch,)}``, or ``(batch, num_classes)``."""
        sparse = self.sparse.stack(acts)  # (batch, features, dim)
        vectors, beside = sparse, []
        if self.dense is not None and self.dense_mlp is not None:
            dense = self.dense_mlp(self.dense.concat(acts, numbers))
            vectors = jnp.concatenate([dense[:, None], sparse], axis=1)
            beside.append(dense)
        if self.arch_with_sparse:
            beside.append(sparse.reshape(-1, self.sparse.dim))
        return {"logits": self.logits(jnp.concatenate([pairwise_dots(vectors), *beside], axis=1))}
