"""MaskNet: layers whose inputs are multiplied by a mask that the example itself decides."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP, optional_layers
from sparrow.models.layers.norms import LayerNorm
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model


@dataclasses.dataclass(frozen=True)
class MaskBlocks:
    """Mask blocks, side by side or one after the other.

    ::

        mask(y) = W_2 relu(W_1 x + c_1) + c_2                     x: the features; as wide as y
        block(y) = relu(norm(W_3 (mask(y) * y) + c_3))
        out = top MLP([block_1(norm(x)), block_2(norm(x)), ...])              use_parallel
        out = top MLP(... block_2(block_1(norm(x))))                          else

    ``norm`` is layer normalization. Without top_mlp, ``out`` is its input.

    Reference: Wang et al., MaskNet, 2021, arXiv 2102.07619.

    Attributes:
      n_mask_blocks: the number of blocks.
      hidden_dim: the width of each block's output.
      reduction_ratio: the width of W_1's output, as a multiple of the block's input.
      aggregation_dim: the same as a number, instead of ``reduction_ratio``.
      top_mlp: layers on top of the blocks.
      use_parallel: whether all blocks read the features, or each the one before.
    """

    n_mask_blocks: fields.Count
    hidden_dim: fields.Count
    reduction_ratio: fields.Positive = 1.0
    aggregation_dim: fields.Count | None = None
    top_mlp: MLP | None = None
    use_parallel: bool = True

    def __post_init__(self) -> None:
        fields.check(self)

    @property
    def units(self) -> int:
        """The width of the blocks' output."""
        return self.hidden_dim * (self.n_mask_blocks if self.use_parallel else 1)

    @property
    def dim(self) -> int:
        return self.units if self.top_mlp is None else self.top_mlp.dim

    def build(self, dim: int, *, rngs: nnx.Rngs) -> MaskLayers:
        return MaskLayers(self, dim, rngs=rngs)


class MaskBlock(nnx.Module):
    """One block of `MaskBlocks`: ``dim`` is the width of its input, ``guide`` that of the features."""

    def __init__(self, blocks: MaskBlocks, dim: int, guide: int, *, rngs: nnx.Rngs) -> None:
        units = blocks.aggregation_dim or max(1, int(dim * blocks.reduction_ratio))
        self.aggregate = nnx.Linear(guide, units, rngs=rngs)
        self.project = nnx.Linear(units, dim, rngs=rngs)
        self.linear = nnx.Linear(dim, blocks.hidden_dim, rngs=rngs)
        self.norm = LayerNorm(blocks.hidden_dim, rngs=rngs)

    def __call__(self, y: jax.Array, x: jax.Array) -> jax.Array:
        """Map the input ``(batch, dim)`` and the features ``(batch, guide)`` to ``(batch, hidden_dim)``."""
        mask = self.project(jax.nn.relu(self.aggregate(x)))
        return jax.nn.relu(self.norm(self.linear(mask * y)))


class MaskLayers(nnx.Module):
    """The layers that `MaskBlocks` describes."""

    def __init__(self, blocks: MaskBlocks, dim: int, *, rngs: nnx.Rngs) -> None:
        self.parallel = blocks.use_parallel
        self.norm = LayerNorm(dim, rngs=rngs)
        later = dim if blocks.use_parallel else blocks.hidden_dim
        dims = (dim, *[later] * (blocks.n_mask_blocks - 1))
        self.blocks = nnx.List([MaskBlock(blocks, width, dim, rngs=rngs) for width in dims])
        self.top, _ = optional_layers(blocks.top_mlp, blocks.units, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.norm(x)
        if self.parallel:
            y = jnp.concatenate([block(y, x) for block in self.blocks], axis=1)
        else:
            for block in self.blocks:
                y = block(y, x)
        return self.top(y)


@register_model("mask_net", is_per_example=True)
class MaskNet(nnx.Module):
    """Mask blocks over the only group: the example decides how much each of its features counts.

    ::

        logits = linear(mask blocks(features of the only group, side by side))          see `MaskBlocks`

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"all": ["user", "item"]})
    >>> blocks = MaskBlocks(n_mask_blocks=2, hidden_dim=8, top_mlp=MLP((4,)))
    >>> model = MaskNet(inputs, mask_net_module=blocks, rngs=nnx.Rngs(0))
    >>> model({"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}, {})["logits"].shape
    (4,)

    Reference: Wang et al., 2021, arXiv 2102.07619.
    """

    def __init__(self, inputs: Inputs, *, mask_net_module: MaskBlocks, num_classes: int = 1, rngs: nnx.Rngs) -> None:
        self.group: Group = inputs.single("MaskNet")
        self.mask_net = mask_net_module.build(self.group.dim, rngs=rngs)
        self.logits = Logits(mask_net_module.dim, None, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        return {"logits": self.logits(self.mask_net(self.group.concat(acts, numbers)))}
