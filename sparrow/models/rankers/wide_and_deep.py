"""Wide & Deep, and DeepFM, which adds a factorization machine to it."""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.interactions import factorization_machine
from sparrow.models.layers.mlp import MLP
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model


@register_model("wide_and_deep", is_per_example=True)
class WideAndDeep(nnx.Module):
    """A linear model over single ids, and a network over their embeddings.

    ::

        wide   = Σ of all activations of the group "wide"
        deep   = deep MLP(features of the group "deep", side by side)
        logits = linear(final MLP([wide, deep]))        with final
        logits = wide + linear(deep)                    without

    The group "wide" wants tables of its own, usually of dim 1: the weights of the linear model.

    >>> inputs = Inputs(acts={"item": 8, "item_wide": 1}, numbers={"age": 1},
    ...                 groups={"wide": ["item_wide"], "deep": ["item", "age"]})
    >>> model = WideAndDeep(inputs, deep=MLP((16,)), rngs=nnx.Rngs(0))
    >>> acts, numbers = {"item": jnp.ones((4, 8)), "item_wide": jnp.ones((4, 1))}, {"age": jnp.ones((4, 1))}
    >>> model(acts, numbers)["logits"].shape
    (4,)

    Reference: Cheng et al., 2016, arXiv 1606.07792.
    """

    wide_groups: ClassVar[tuple[str, ...]] = ("wide",)

    def __init__(
        self, inputs: Inputs, *, deep: MLP, final: MLP | None = None, num_classes: int = 1, rngs: nnx.Rngs
    ) -> None:
        inputs.check("WideAndDeep", required=("wide", "deep"))
        _check_output("WideAndDeep", num_classes, final)
        self.wide: Group = inputs.embedded("wide")
        self.group: Group = inputs.group("deep")
        self.deep = deep.build(self.group.dim, rngs=rngs)
        self.has_final = final is not None
        self.logits = Logits(deep.dim + (1 if final else 0), final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        wide = _wide(self.wide, acts)
        deep = self.deep(self.group.concat(acts, numbers))
        if self.has_final:
            return {"logits": self.logits(jnp.concatenate([wide.astype(deep.dtype), deep], axis=1))}
        return {"logits": wide[:, 0] + self.logits(deep)}


@register_model("deepfm", is_per_example=True)
class DeepFM(nnx.Module):
    """A linear model over single ids, a factorization machine and a network over their embeddings.

    ::

        wide   = Σ of all activations of the group "wide"
        fm     = ((Σ_i v_i)² - Σ_i v_i²) / 2            over the vectors of the group "fm"
        deep   = deep MLP(features of the group "deep", side by side)
        logits = linear(final MLP([wide, fm, deep]))    with final
        logits = wide + Σ fm + linear(deep)             without

    The group "wide" wants tables of its own, usually of dim 1: the weights of the linear model. Without a group "fm"
    the factorization machine is over the embeddings of the group "deep", which then have one dim; plain numbers of that
    group reach the network alone.

    >>> inputs = Inputs(acts={"user": 8, "item": 8, "item_wide": 1}, numbers={"age": 1},
    ...                 groups={"wide": ["item_wide"], "fm": ["user", "item"], "deep": ["user", "item", "age"]})
    >>> model = DeepFM(inputs, deep=MLP((16,)), final=MLP((8,)), rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8)), "item_wide": jnp.ones((4, 1))}
    >>> model(acts, {"age": jnp.ones((4, 1))})["logits"].shape
    (4,)

    Reference: Guo et al., 2017, arXiv 1703.04247.
    """

    wide_groups: ClassVar[tuple[str, ...]] = ("wide",)

    def __init__(
        self, inputs: Inputs, *, deep: MLP, final: MLP | None = None, num_classes: int = 1, rngs: nnx.Rngs
    ) -> None:
        inputs.check("DeepFM", required=("wide", "deep"), optional=("fm",))
        _check_output("DeepFM", num_classes, final)
        self.wide: Group = inputs.embedded("wide")
        has_fm = "fm" in inputs.groups
        self.fm: Group = inputs.vectors("fm") if has_fm else inputs.vectors("deep", beside_numbers=True)
        self.group: Group = inputs.group("deep")
        self.deep = deep.build(self.group.dim, rngs=rngs)
        self.has_final = final is not None
        self.logits = Logits(deep.dim + (1 + self.fm.dims[0] if final else 0), final, num_classes, rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        wide, fm = _wide(self.wide, acts), factorization_machine(self.fm.stack(acts))
        deep = self.deep(self.group.concat(acts, numbers))
        if self.has_final:
            parts = [wide.astype(deep.dtype), fm.astype(deep.dtype), deep]
            return {"logits": self.logits(jnp.concatenate(parts, axis=1))}
        return {"logits": wide[:, 0] + fm.sum(axis=1) + self.logits(deep)}


def _wide(group: Group, acts: Arrays) -> jax.Array:
    """Return the linear model, ``(batch, 1)``, float32: many small terms, and one of the terms of the logit itself."""
    return group.concat(acts, {}).astype(jnp.float32).sum(axis=1, keepdims=True)


def _check_output(model: str, num_classes: int, final: MLP | None) -> None:
    fields.integer(f"{model}: num_classes", num_classes)
    if num_classes > 1 and final is None:
        # One number added to the logits of all classes is nothing to a softmax.
        raise ValueError(f"{model} with num_classes={num_classes} needs final, or its wide part would have no effect")
