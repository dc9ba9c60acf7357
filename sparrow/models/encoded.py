"""Any model over histories: encoders make features of them, and the model reads those."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Listed
from typing import Any

import jax
from flax import nnx

from sparrow.models.inputs import Arrays, Inputs, SequenceGroup
from sparrow.models.records import Buildable
from sparrow.models.sequences.records import EncoderRecord


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
        encoders: Mapping[str, Listed[EncoderRecord]],
        *,
        rngs: nnx.Rngs,
    ) -> None:
        read = {record.input for records in encoders.values() for record in records}
        own = {name: list(names) for name, names in inputs.groups.items() if name not in read}
        self.made: tuple[tuple[str, SequenceGroup, bool], ...] = ()
        self.encoders: nnx.List[Any] = nnx.List([])
        dims = {}
        for group, records in encoders.items():
            if group in read:
                raise ValueError(f"the group '{group}' is read by an encoder, and cannot have encoders of its own")
            own.setdefault(group, [])
            for index, record in enumerate(records):
                sequences, name = inputs.sequence_group(record.input), f"{group}/{record.input}/{index}"
                encoder, dims[name] = record.build(sequences, rngs=rngs)
                self.encoders.append(encoder)
                self.made = (*self.made, (name, sequences, record.attends))
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
        for encoder, (name, group, attends) in zip(self.encoders, self.made, strict=True):
            sequence = group.sequence(acts, numbers)
            features[name] = encoder(sequence, group.query(acts, numbers)) if attends else encoder(sequence)
        outputs: dict[str, jax.Array] = self.model(features, numbers)
        return outputs
