"""Embeddings of numbers, as fields of a feature: the model learns a vector as a function of the number."""

from __future__ import annotations

import dataclasses

from sparrow import fields
from sparrow.registry import Registry


class NumberEmbedding:
    """How a number becomes a vector. The layers are in `sparrow.models`."""


registry: Registry[NumberEmbedding] = Registry("embedding of numbers", NumberEmbedding)
"""Embeddings of numbers by name."""


@registry.register("mlp")
@dataclasses.dataclass(frozen=True)
class MLPEmbedding(NumberEmbedding):
    """One linear layer without a bias: ``e = x @ kernel``."""


@registry.register("autodis")
@dataclasses.dataclass(frozen=True)
class AutoDis(NumberEmbedding):
    """A soft choice among learned vectors, the channels.

    ::

        h = leaky_relu(x * w)                            num_channels numbers
        c = softmax((h @ W + keep_prob * h) / temperature)
        e = sum over channels of c * vector

    Reference: Guo et al., An Embedding Learning Framework for Numerical Features in CTR Prediction, KDD 2021,
    arXiv 2012.08986.

    Attributes:
      num_channels: the number of learned vectors.
      temperature: the lower, the harder the choice.
      keep_prob: the weight of the skip connection.
    """

    num_channels: fields.Count
    temperature: fields.Positive = 0.1
    keep_prob: fields.NotNegative = 0.8

    def __post_init__(self) -> None:
        fields.check(self)
