"""Rocket launching: a light network learns from the labels and from a larger one that is trained beside it."""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow.models.functional import extra_loss
from sparrow.models.inputs import Arrays, Group, Inputs
from sparrow.models.layers.mlp import MLP, optional_layers
from sparrow.models.layers.norms import unit
from sparrow.models.layers.towers import Logits
from sparrow.models.records import register_model

DistillationFunction = Literal["cosine", "euclid"]


@register_model("rocket_launching", is_per_example=True)
class RocketLaunching(nnx.Module):
    """Distillation: the light network is served, the booster is trained with it and leads it.

    ::

        s       = share MLP(features of the only group)             the features themselves without share_mlp
        booster = linear(booster MLP(s))
        light   = linear(light MLP(stop_gradient(s)))
        loss/hint = (light - stop_gradient(booster))²                per example, the mean over classes
        loss/similarity_i_j = -0.1 * cos(l_i, stop_gradient(b_j))    feature_based_distillation with "cosine"
        loss/similarity_i_j = |l_i - stop_gradient(b_j)|             feature_based_distillation with "euclid"

    ``l_i`` is layer i of the light network and ``b_j`` the first layer of the booster that is as wide. The outputs are
    two tasks, "light" and "booster": a config has one of each name, with one label. The losses are added in training.

    >>> inputs = Inputs(acts={"user": 8, "item": 8}, groups={"all": ["user", "item"]})
    >>> model = RocketLaunching(inputs, booster_mlp=MLP((32, 16)), light_mlp=MLP((16,)), rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((4, 8)), "item": jnp.ones((4, 8))}
    >>> {name: array.shape for name, array in model(acts, {}).items()}
    {'light': (4,), 'booster': (4,), 'loss/hint': (4,)}

    Reference: Zhou et al., Rocket Launching, AAAI 2018, arXiv 1708.04106.
    """

    def __init__(
        self,
        inputs: Inputs,
        *,
        booster_mlp: MLP,
        light_mlp: MLP,
        share_mlp: MLP | None = None,
        feature_based_distillation: bool = False,
        feature_distillation_function: DistillationFunction = "cosine",
        num_classes: int = 1,
        rngs: nnx.Rngs,
    ) -> None:
        self.group: Group = inputs.single("RocketLaunching")
        self.share, dim = optional_layers(share_mlp, self.group.dim, rngs=rngs)
        self.booster, self.light = booster_mlp.build(dim, rngs=rngs), light_mlp.build(dim, rngs=rngs)
        self.booster_logits = Logits(booster_mlp.dim, None, num_classes, rngs=rngs)
        self.light_logits = Logits(light_mlp.dim, None, num_classes, rngs=rngs)
        wide = booster_mlp.hidden_units
        self.pairs = tuple((i, wide.index(units)) for i, units in enumerate(light_mlp.hidden_units) if units in wide)
        if not feature_based_distillation:
            self.pairs = ()
        elif not self.pairs:
            raise ValueError(
                "RocketLaunching with feature_based_distillation needs a layer of one width in both networks, got "
                f"light_mlp {light_mlp.hidden_units} and booster_mlp {wide}"
            )
        self.function = feature_distillation_function
        self.deterministic = False  # nnx.Module.eval sets it: without training there is no loss

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """``{"light": (batch,), "booster": (batch,)}``, or ``(batch, num_classes)``; in training losses, too."""
        shared = self.share(self.group.concat(acts, numbers))
        booster_layers = self.booster.each(shared)
        light_layers = self.light.each(jax.lax.stop_gradient(shared))
        booster, light = self.booster_logits(booster_layers[-1]), self.light_logits(light_layers[-1])
        outputs = {"light": light, "booster": booster}
        if self.deterministic:
            return outputs
        squares = jnp.square(light - jax.lax.stop_gradient(booster))
        outputs[extra_loss("hint")] = squares if squares.ndim == 1 else squares.mean(axis=1)
        for i, j in self.pairs:
            outputs[extra_loss(f"similarity_{i}_{j}")] = self._similarity(light_layers[i], booster_layers[j])
        return outputs

    def _similarity(self, light: jax.Array, booster: jax.Array) -> jax.Array:
        light, booster = light.astype(jnp.float32), jax.lax.stop_gradient(booster).astype(jnp.float32)
        if self.function == "cosine":
            return -0.1 * (unit(light) * unit(booster)).sum(axis=1)
        difference = light - booster
        return (unit(difference) * difference).sum(axis=1)  # |difference|, with gradient 0 at 0
