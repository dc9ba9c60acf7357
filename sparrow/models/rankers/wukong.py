"""Wukong: stacked factorization machines, whose order doubles with each layer."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.layers.interactions import Vectors
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.norms import LayerNorm
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model


@dataclasses.dataclass(frozen=True)
class WukongLayer:
    """One layer of `Wukong`: from n vectors to ``fmb_feature_num + lcb_feature_num`` vectors of the same dim.

    Attributes:
      lcb_feature_num: the number of vectors of the linear compression block.
      fmb_feature_num: the number of vectors of the factorization machine block.
      feature_num_mlp: the layers of the factorization machine block.
      compressed_feature_num: the number of vectors that each vector meets in the factorization machine.
    """

    lcb_feature_num: int
    fmb_feature_num: int
    feature_num_mlp: MLP
    compressed_feature_num: int = 16

    def __post_init__(self) -> None:
        for name in ("lcb_feature_num", "fmb_feature_num", "compressed_feature_num"):
            fields.integer(f"WukongLayer.{name}", getattr(self, name))

    @property
    def features(self) -> int:
        """The number of vectors that it gives."""
        return self.fmb_feature_num + self.lcb_feature_num

    def build(self, features: int, dim: int, *, rngs: nnx.Rngs) -> WukongBlock:
        return WukongBlock(self, features, dim, rngs=rngs)


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

    A config with one group may call it as it likes; with two they are "sparse" and "dense".

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
            [layer.build(count, dim, rngs=rngs) for layer, count in zip(wukong_layers, counts[:-1], strict=True)]
        )
        self.logits = Logits(counts[-1] * dim, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        x = self.vectors(acts, numbers)
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.logits(x.reshape(x.shape[0], -1))}
