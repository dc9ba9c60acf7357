"""xDeepFM: a compressed interaction network beside a deep one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model


class CIN(nnx.Module):
    """Compressed interaction network: products of vectors, element by element, compressed at each order.

    ::

        x^k_h = Σ_{i,j} w^k_{hij} (x^{k-1}_i * x^0_j) + b^k_h           vectors of one dim, h of cin_layer_size[k]
        out   = [Σ_d x^k_h[d]  for all k and h]

    >>> CIN(3, (4, 2), rngs=nnx.Rngs(0))(jnp.ones((5, 3, 8))).shape
    (5, 6)

    Reference: Lian et al., 2018, arXiv 1803.05170, section 3.
    """

    def __init__(self, features: int, layer_sizes: Sequence[int], *, rngs: nnx.Rngs) -> None:
        if not layer_sizes:
            raise ValueError("cin_layer_size must be a list of at least one size, got none")
        for size in layer_sizes:
            fields.integer("cin_layer_size", size)
        before = (features, *layer_sizes[:-1])
        self.layers = nnx.List(
            [nnx.Linear(rows * features, size, rngs=rngs) for rows, size in zip(before, layer_sizes, strict=True)]
        )
        self.dim = sum(layer_sizes)

    def __call__(self, vectors: jax.Array) -> jax.Array:
        first = jnp.swapaxes(vectors, 1, 2)  # (batch, dim, features): the features are contracted, the dims are kept
        x, parts = first, []
        for layer in self.layers:
            products = x[..., :, None] * first[..., None, :]
            x = layer(products.reshape(*products.shape[:2], -1))
            parts.append(x.astype(jnp.float32).sum(axis=1).astype(x.dtype))
        return jnp.concatenate(parts, axis=1)


@register_model("xdeepfm", is_per_example=True)
class XDeepFM(nnx.Module):
    """Explicit interactions of vectors of bounded order, and a network over the embeddings.

    ::

        cin    = CIN(vectors of the group "wide")                   see `CIN`
        deep   = deep MLP(features of the group "deep", side by side)
        logits = linear(final MLP([cin, deep]))

    The group "wide" has tables of its own, whose dim is the option wide_dim of a config.

    >>> inputs = Inputs(acts={"user": 8, "user_wide": 4, "item_wide": 4},
    ...                 groups={"wide": ["user_wide", "item_wide"], "deep": ["user"]})
    >>> model = XDeepFM(inputs, cin_layer_size=(3, 2), deep=MLP((16,)), final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((4, 8)), "user_wide": jnp.ones((4, 4)), "item_wide": jnp.ones((4, 4))}
    >>> model(acts, {})["logits"].shape
    (4,)

    Reference: Lian et al., 2018, arXiv 1803.05170.

    Attributes:
      cin_layer_size: the number of vectors that each layer of the CIN keeps.
    """

    wide_groups: ClassVar[tuple[str, ...]] = ("wide",)

    def __init__(
        self,
        inputs: Inputs,
        *,
        cin_layer_size: tuple[int, ...],
        deep: MLP,
        final: MLP,
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        inputs.check("XDeepFM", required=("wide", "deep"))
        self.wide: Group = inputs.vectors("wide")
        self.group: Group = inputs.group("deep")
        self.cin = CIN(len(self.wide.names), cin_layer_size, rngs=rngs)
        self.deep = deep.build(self.group.dim, rngs=rngs)
        self.logits = Logits(self.cin.dim + deep.dim, final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        deep = self.deep(self.group.concat(acts, numbers))
        return {"logits": self.logits(jnp.concatenate([self.cin(self.wide.stack(acts)), deep], axis=1))}
