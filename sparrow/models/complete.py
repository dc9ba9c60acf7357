"""A model with everything around it that a config may ask for: encoders of histories, variational dropout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from flax import nnx

from sparrow.models.inputs import Arrays, Inputs, SequenceGroup
from sparrow.models.layers.variational_dropout import VariationalDropout
from sparrow.models.records import Buildable
from sparrow.models.sequences.encoders import EncoderRecord


class Encoded(nnx.Module):
    """A model some of whose groups have features that encoders make of histories.

    The groups that encoders read are known to the encoders alone; a feature of such a group that stands in no other
    one, such as the history itself, does not reach the model.

    >>> import jax.numpy as jnp
    >>> from sparrow.models import MLP, Sequence, registry
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
        encoders: Mapping[str, Sequence[EncoderRecord]],
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
    encoders: Mapping[str, Sequence[EncoderRecord]] = dataclasses.field(default_factory=dict)
    variational_dropout: float | None = None

    def build(self, inputs: Inputs, *, rngs: nnx.Rngs) -> nnx.Module:
        if self.encoders:
            inner = dataclasses.replace(self, encoders={})
            return Encoded(inner, inputs, self.encoders, rngs=rngs)
        if self.variational_dropout is not None:
            return VariationalDropout(self.architecture, inputs, self.variational_dropout, rngs=rngs)
        return self.architecture.build(inputs, rngs=rngs)
