"""DLRM and Wukong: vectors of one dim, of features and of numbers, that meet each other."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields, kernels
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP, optional_layers
from sparrow.models.layers.norms import LayerNorm
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model


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
        self.dense_mlp, _ = optional_layers(dense_mlp, self.dense.dim if self.dense else 0, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> jax.Array:
        return jnp.concatenate(self.parts(acts, numbers), axis=1)

    def parts(self, acts: Arrays, numbers: Arrays) -> list[jax.Array]:
        """Return the vector of the numbers, where there is one, and those of the group: ``(batch, 1 or n, dim)``."""
        sparse = self.sparse.stack(acts)
        if self.dense is None:
            return [sparse]
        return [self.dense_mlp(self.dense.concat(acts, numbers))[:, None], sparse]


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
        return {"logits": self.logits(*parts)}


@dataclasses.dataclass(frozen=True)
class WukongLayer:
    """One layer of `Wukong`: from n vectors to ``fmb_feature_num + lcb_feature_num`` vectors of the same dim.

    Attributes:
      lcb_feature_num: the number of vectors of the linear compression block.
      fmb_feature_num: the number of vectors of the factorization machine block.
      feature_num_mlp: the layers of the factorization machine block.
      compressed_feature_num: the number of vectors that each vector meets in the factorization machine.
    """

    lcb_feature_num: fields.Count
    fmb_feature_num: fields.Count
    feature_num_mlp: MLP
    compressed_feature_num: fields.Count = 16

    def __post_init__(self) -> None:
        fields.check(self)

    @property
    def features(self) -> int:
        return self.fmb_feature_num + self.lcb_feature_num


class WukongBlock(nnx.Module):
    """The layer that a `WukongLayer` describes."""

    def __init__(self, layer: WukongLayer, features: int, dim: int, *, rngs: nnx.Rngs) -> None:
        def combine(count: int) -> nnx.Linear:
            return nnx.Linear(features, count, use_bias=False, rngs=rngs)

        pairs = features * layer.compressed_feature_num
        self.compress, self.meet = combine(layer.lcb_feature_num), combine(layer.compressed_feature_num)
        self.pairs_norm = LayerNorm(pairs, rngs=rngs)
        self.mlp = layer.feature_num_mlp.build(pairs, rngs=rngs)
        self.linear = nnx.Linear(layer.feature_num_mlp.dim, layer.fmb_feature_num * dim, rngs=rngs)
        self.residual = nnx.data(None) if layer.features == features else combine(layer.features)
        self.norm = LayerNorm(dim, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        batch, _, dim = x.shape
        columns = jnp.swapaxes(x, 1, 2)  # (batch, dim, features), for maps over the features
        pairs = jnp.einsum("bfd,bdc->bfc", x, self.meet(columns)).reshape(batch, -1)
        machine = self.linear(self.mlp(self.pairs_norm(pairs))).reshape(batch, -1, dim)
        linear = jnp.swapaxes(self.compress(columns), 1, 2)
        kept = x if self.residual is None else jnp.swapaxes(self.residual(columns), 1, 2)
        return self.norm(jnp.concatenate([machine, linear], axis=1) + kept)


@register_model("wukong", is_per_example=True)
class Wukong(nnx.Module):
    """Layers of factorization machines over vectors: layer l holds interactions of up to 2^l features.

    ::

        dense   = dense MLP(features of the group "dense", side by side)     one more vector
        X_0     = dense and the vectors of the group "sparse"                (features, dim)
        FMB(X)  = linear(MLP(norm(flat(X Xᵀ W_c))))                          fmb_feature_num vectors
        LCB(X)  = W_l X                                                      lcb_feature_num vectors
        X_{l+1} = norm([FMB(X_l), LCB(X_l)] + W_r X_l)                       W_r = 1 where the counts agree
        logits  = linear(final MLP(flat(X_last)))

    One group may have any name; two groups are "sparse" and "dense".

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"sparse": ["user", "item"]})
    >>> layer = WukongLayer(lcb_feature_num=2, fmb_feature_num=2, feature_num_mlp=MLP((8,)))
    >>> model = Wukong(inputs, wukong_layers=(layer, layer), final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {})["logits"].shape
    (4,)

    Reference: Zhang et al., Wukong: Towards a Scaling Law for Large-Scale Recommendation, 2024, arXiv 2403.02545.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        wukong_layers: tuple[WukongLayer, ...],
        final: MLP,
        dense_mlp: MLP | None = None,
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        sparse = next(iter(inputs.groups)) if len(inputs.groups) == 1 else "sparse"
        if not wukong_layers:
            raise ValueError("Wukong.wukong_layers must be at least one layer, got none")
        self.vectors = Vectors("Wukong", inputs, sparse, dense_mlp, rngs=rngs)
        dim = self.vectors.dim
        counts = [self.vectors.count, *(layer.features for layer in wukong_layers)]
        self.layers = nnx.List(
            [WukongBlock(layer, count, dim, rngs=rngs) for layer, count in zip(wukong_layers, counts[:-1], strict=True)]
        )
        self.logits = Logits(counts[-1] * dim, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        x = self.vectors(acts, numbers)
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.logits(x.reshape(x.shape[0], -1))}
