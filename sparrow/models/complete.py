"""A model with everything around it that a config may ask for: encoders of histories, variational dropout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from flax import nnx

from sparrow.models.encoded import Encoded
from sparrow.models.inputs import Inputs
from sparrow.models.layers.variational_dropout import VariationalDropout
from sparrow.models.records import Buildable
from sparrow.models.sequences.records import EncoderRecord


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
