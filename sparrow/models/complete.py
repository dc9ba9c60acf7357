"""Parts that a config may put around a model: encoders of histories, embeddings of numbers, variational dropout."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Listed
from typing import Any, Final

import jax
import jax.numpy as jnp
from flax import nnx

from sparrow import fields
from sparrow.data import AutoDis, MLPEmbedding, NumberEmbedding
from sparrow.models.functional import extra_loss
from sparrow.models.inputs import Arrays, Inputs, Sequence, SequenceGroup
from sparrow.models.records import Buildable
from sparrow.models.sequences.encoders import EncoderRecord

_NORMAL = nnx.initializers.normal(1.0)


class LinearNumbers(nnx.Module):
    """``x @ kernel``, see `sparrow.data.MLPEmbedding`.

    >>> LinearNumbers(1, 4, rngs=nnx.Rngs(0))(jnp.ones((2, 1))).shape
    (2, 4)
    """

    def __init__(self, dim: int, embedding_dim: int, *, rngs: nnx.Rngs) -> None:
        self.kernel = nnx.Param(_NORMAL(rngs.params(), (dim, embedding_dim)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``(..., dim)`` to ``(..., embedding_dim)``, in the dtype of the parameters."""
        kernel = self.kernel[...]
        return (x @ kernel.astype(x.dtype)).astype(kernel.dtype)


class AutoDisNumbers(nnx.Module):
    """A soft choice among learned vectors, see `sparrow.data.AutoDis` for the equations.

    >>> AutoDisNumbers(AutoDis(num_channels=3), 4, rngs=nnx.Rngs(0))(jnp.ones((2, 1))).shape
    (2, 4)
    """

    def __init__(self, record: AutoDis, embedding_dim: int, *, rngs: nnx.Rngs) -> None:
        channels = record.num_channels
        self.temperature, self.keep = record.temperature, record.keep_prob
        self.first = nnx.Param(_NORMAL(rngs.params(), (1, channels)))
        self.second = nnx.Param(_NORMAL(rngs.params(), (channels, channels)))
        self.vectors = nnx.Param(_NORMAL(rngs.params(), (channels, embedding_dim)))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``(..., 1)`` to ``(..., embedding_dim)``, in the dtype of the parameters."""
        first, second, vectors = (weight[...] for weight in (self.first, self.second, self.vectors))
        h = jax.nn.leaky_relu(x @ first.astype(x.dtype))
        chosen = jax.nn.softmax((h @ second.astype(x.dtype) + self.keep * h) / self.temperature)
        return (chosen @ vectors.astype(x.dtype)).astype(vectors.dtype)


class NumberEmbeddings(nnx.Module):
    """A model some of whose numeric features have learned embeddings: it takes those as if they came from tables.

    >>> from sparrow.models import registry
    >>> inputs = Inputs(acts={"user": 4}, numbers={"price": 1}, groups={"all": ["user", "price"]})
    >>> record = registry.from_dict({"name": "dcn_v2", "final": {"hidden_units": [8]}})
    >>> build = lambda inputs, rngs: record.build(inputs, rngs=rngs)
    >>> model = NumberEmbeddings(build, inputs, {"price": (MLPEmbedding(), 4)}, rngs=nnx.Rngs(0))
    >>> model({"user": jnp.ones((2, 4))}, {"price": jnp.ones((2, 1))})["logits"].shape
    (2,)

    Args:
      build: makes the model, from its inputs and ``rngs``.
      inputs: all features.
      embeddings: the embedding of each feature, and its dim.
    """

    def __init__(
        self,
        build: Callable[[Inputs, nnx.Rngs], nnx.Module],
        inputs: Inputs,
        embeddings: Mapping[str, tuple[NumberEmbedding, int]],
        *,
        rngs: nnx.Rngs,
    ) -> None:
        width = {**inputs.numbers, **inputs.sequences}
        self.layers = nnx.Dict(
            {name: _layer(record, width[name], dim, rngs) for name, (record, dim) in embeddings.items()}
        )
        dims = {name: dim for name, (_, dim) in embeddings.items()}
        numbers = {name: dim for name, dim in inputs.numbers.items() if name not in dims}
        sequences = {name: dims.get(name, dim) for name, dim in inputs.sequences.items()}
        acts = {**inputs.acts, **{name: dim for name, dim in dims.items() if name in inputs.numbers}}
        self.model = build(Inputs(acts, numbers, inputs.groups, sequences), rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        made, rest = dict(acts), dict(numbers)
        for name, layer in self.layers.items():
            given = rest.pop(name)
            is_sequence = isinstance(given, Sequence)
            made[name] = Sequence(layer(given.values), given.lengths) if is_sequence else layer(given)
        outputs: dict[str, jax.Array] = self.model(made, rest)
        return outputs


def _layer(record: NumberEmbedding, width: int, dim: int, rngs: nnx.Rngs) -> nnx.Module:
    if isinstance(record, AutoDis):
        return AutoDisNumbers(record, dim, rngs=rngs)
    if isinstance(record, MLPEmbedding):
        return LinearNumbers(width, dim, rngs=rngs)
    raise ValueError(f"there are no layers for the embedding of numbers {record!r}; use mlp or autodis")


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

    >>> from sparrow.models import registry
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
        names = dict(self.groups)
        kept = {group: (1 - self._probability(group)).tolist() for group in self.dropped}
        return {group: dict(zip(names[group], kept[group], strict=True)) for group in self.dropped}

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


class Encoded(nnx.Module):
    """A model some of whose groups have features that encoders make of histories.

    The groups that encoders read are known to the encoders alone; a feature of such a group that stands in no other
    one, such as the history itself, does not reach the model.

    >>> from sparrow.models import registry
    >>> from sparrow.models.sequences import encoders
    >>> inputs = Inputs(acts={"user": 4, "item": 4}, sequences={"clicks": 4},
    ...                 groups={"all": ["user", "item"], "history": ["item", "clicks"]})
    >>> record = registry.from_dict({"name": "dcn_v2", "final": {"hidden_units": [8]}})
    >>> din = encoders.from_dict({"name": "din_encoder", "input": "history", "attn_mlp": {"hidden_units": [8]}})
    >>> model = Encoded(record, inputs, {"all": [din]}, rngs=nnx.Rngs(0))
    >>> acts = {"user": jnp.ones((2, 4)), "item": jnp.ones((2, 4)),
    ...         "clicks": Sequence(jnp.ones((2, 3, 4)), jnp.array([3, 0]))}
    >>> model(acts, {})["logits"].shape
    (2,)

    Args:
      architecture: the model.
      inputs: all features, histories included, and all groups.
      encoders: by group of the model, the encoders whose results join it, behind its own features. A group that
        ``inputs`` lacks holds their results alone.
    """

    def __init__(
        self,
        architecture: Buildable,
        inputs: Inputs,
        encoders: Mapping[str, Listed[EncoderRecord]],
        *,
        rngs: nnx.Rngs,
    ) -> None:
        read = {record.input for records in encoders.values() for record in records}
        own = {name: list(names) for name, names in inputs.groups.items() if name not in read}
        self.made: tuple[tuple[str, SequenceGroup], ...] = ()
        self.encoders: nnx.List[Any] = nnx.List([])
        dims = {}
        for group, records in encoders.items():
            if group in read:
                raise ValueError(f"the group '{group}' is read by an encoder, and cannot have encoders of its own")
            own.setdefault(group, [])
            for index, record in enumerate(records):
                sequences, name = inputs.sequence_group(record.input), f"{group}/{record.input}/{index}"
                self.encoders.append(record.build(sequences, rngs=rngs))
                dims[name] = self.encoders[-1].dim
                self.made = (*self.made, (name, sequences))
                own[group].append(name)
        kept = {name for names in own.values() for name in names}
        self.names = tuple(name for name in (*inputs.acts, *inputs.numbers, *inputs.sequences) if name in kept)
        acts, numbers, histories = (
            {name: dim for name, dim in kind.items() if name in kept}
            for kind in (inputs.acts, inputs.numbers, inputs.sequences)
        )
        self.model = architecture.build(Inputs(acts | dims, numbers, own, histories), rngs=rngs)

    def __call__(self, acts: Arrays, numbers: Arrays) -> dict[str, jax.Array]:
        features = {name: acts[name] for name in self.names if name in acts}
        for encoder, (name, group) in zip(self.encoders, self.made, strict=True):
            sequence = group.sequence(acts, numbers)
            features[name] = encoder(sequence, group.query(acts, numbers)) if encoder.attends else encoder(sequence)
        outputs: dict[str, jax.Array] = self.model(features, numbers)
        return outputs


@dataclasses.dataclass(frozen=True)
class Complete:
    """The description of a model, encoders of histories before it and variational dropout between the two.

    Attributes:
      architecture: the model.
      encoders: by group of the model, the encoders whose results join it; see `Encoded`.
      variational_dropout: the strength of `VariationalDropout`; None for none.

    >>> from sparrow.models import registry
    >>> complete = Complete(registry.from_dict({"name": "dcn_v2", "final": {"hidden_units": [8]}}))
    >>> inputs = Inputs(acts={"user": 4, "item": 4}, groups={"all": ["user", "item"]})
    >>> type(complete.build(inputs, rngs=nnx.Rngs(0))).__name__
    'DCNv2'
    """

    architecture: Buildable
    encoders: Mapping[str, Listed[EncoderRecord]] = dataclasses.field(default_factory=dict)
    variational_dropout: float | None = None

    def build(self, inputs: Inputs, *, rngs: nnx.Rngs) -> nnx.Module:
        if self.encoders:
            inner = dataclasses.replace(self, encoders={})
            return Encoded(inner, inputs, self.encoders, rngs=rngs)
        if self.variational_dropout is not None:
            return VariationalDropout(self.architecture, inputs, self.variational_dropout, rngs=rngs)
        return self.architecture.build(inputs, rngs=rngs)
