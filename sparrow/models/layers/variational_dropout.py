"""Variational dropout: each feature of a group has a learned probability to be left out, which ranks the features."""

from __future__ import annotations

from typing import Final

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.models.extra_losses import extra_loss
from sparrow.models.inputs import Arrays, Inputs
from sparrow.models.records import Buildable

TEMPERATURE: Final = 0.1
EDGE: Final = 2.0**-23
"""Uniform numbers stay this far from 0 and 1, whose logarithms are infinite."""


class VariationalDropout(nnx.Module):
    """A model whose single features are dropped with probabilities that it learns.

    ::

        p_f    = sigmoid(a_f)                                                    a: learned; one per group and feature
        z      = sigmoid((log p_f - log(1 - p_f) + log u - log(1 - u)) / 0.1)    u: uniform, per example and feature
        x_f    = x_f * (1 - z)                                                   in training
        x_f    = x_f * (1 - p_f)                                                 else
        loss/variational_dropout_g = regularization_lambda / batch * Σ_f (1 - p_f)            per group g

    Groups of one feature and histories in order stay as they are. `kept` gives ``1 - p_f``: features that a model can
    do without have small ones.

    >>> from sparrow.models import MLP, registry
    >>> inputs = Inputs(acts={"user": 4, "item": 4}, groups={"all": ["user", "item"]})
    >>> record = registry.from_dict({"name": "dcn_v2", "final": {"hidden_units": [8]}})
    >>> model = VariationalDropout(record, inputs, 0.01, rngs=nnx.Rngs(0))
    >>> {name: array.shape for name, array in model({"user": jnp.ones((2, 4)), "item": jnp.ones((2, 4))}, {}).items()}
    {'logits': (2,), 'loss/variational_dropout_all': ()}
    >>> sorted(model.kept()["all"])
    ['item', 'user']

    Reference: Gal et al., Concrete Dropout, 2017, arXiv 1705.07832; Chang et al., Dropout Feature Ranking, 2017,
    arXiv 1712.08645.
    """

    def __init__(
        self, architecture: Buildable, inputs: Inputs, regularization_lambda: float, *, rngs: nnx.Rngs
    ) -> None:
        fields.number("variational_dropout", regularization_lambda, at_least=0)
        self.strength = regularization_lambda
        self.groups = tuple(inputs.groups.items())
        self.dropped = tuple(
            name for name, names in self.groups if len(names) > 1 and not set(names) & set(inputs.sequences)
        )
        self.logits = nnx.Dict(
            {name: nnx.Param(jax.random.normal(rngs.params(), (len(inputs.groups[name]),))) for name in self.dropped}
        )
        self.rngs = rngs.dropout.fork()
        self.deterministic = False
        # Features of several groups are dropped in each by itself, so the model knows them by group.
        kinds = [
            {_name(group, name): dims[name] for group, names in self.groups for name in names if name in dims}
            for dims in (inputs.acts, inputs.numbers, inputs.sequences)
        ]
        groups = {group: [_name(group, name) for name in names] for group, names in self.groups}
        self.model = architecture.build(Inputs(kinds[0], kinds[1], groups, kinds[2]), rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        """Return the outputs of the model, and in training the loss of each group."""
        inner_acts, inner_numbers = dict[str, jax.Array](), dict[str, jax.Array]()
        for group, names in self.groups:
            for place, name in enumerate(names):
                array = acts[name] if name in acts else numbers[name]
                if group in self.dropped:
                    array = array * self._factor(group, place, array.shape[0]).astype(array.dtype)
                (inner_acts if name in acts else inner_numbers)[_name(group, name)] = array
        outputs: dict[str, jax.Array] = self.model(inner_acts, inner_numbers)
        if self.deterministic:
            return outputs
        batch = next(iter(outputs.values())).shape[0]
        penalties = {group: self.strength / batch * (1 - self._probability(group)).sum() for group in self.dropped}
        return outputs | {extra_loss(f"variational_dropout_{group}"): value for group, value in penalties.items()}

    def kept(self) -> dict[str, dict[str, float]]:
        """Return the probability to be kept, by group and feature."""
        chances = {group: 1 - self._probability(group) for group in self.dropped}
        return {
            group: {name: float(chances[group][place]) for place, name in enumerate(names)}
            for group, names in self.groups
            if group in self.dropped
        }

    def _probability(self, group: str) -> jax.Array:
        return jax.nn.sigmoid(self.logits[group][...].astype(jnp.float32))

    def _factor(self, group: str, place: int, rows: int) -> jax.Array:
        """``(rows, 1)``, or one number without training."""
        if self.deterministic:
            return 1 - self._probability(group)[place]
        noise = jax.random.uniform(self.rngs(), (rows, 1), minval=EDGE, maxval=1 - EDGE)
        logit = self.logits[group][...][place].astype(jnp.float32)  # log p - log(1 - p)
        return 1 - jax.nn.sigmoid((logit + jnp.log(noise) - jnp.log1p(-noise)) / TEMPERATURE)


def _name(group: str, feature: str) -> str:
    return f"{group}/{feature}"
