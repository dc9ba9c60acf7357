"""Encoders by name: the settings of a history that becomes one feature of a group."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, ClassVar

from flax import nnx

from sparrow import fields
from sparrow.models.descriptions import ENCODER_DESCRIPTIONS
from sparrow.models.inputs import SequenceGroup
from sparrow.models.layers.mlp import MLP
from sparrow.models.sequences.pooling import Pooling, PoolingEncoder
from sparrow.models.sequences.self_attention import SelfAttention
from sparrow.models.sequences.target_attention import SimpleAttention, TargetAttention, WindowAttention
from sparrow.registry import Registry


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderRecord(abc.ABC):
    """An encoder of one group of sequences.

    Attributes:
      input: the name of the group, which holds the sequences and the features that attend to them.
      max_length: the largest number of elements, from the first on; None keeps all.
      is_per_example: whether the encoding of a history depends on that example alone, batch statistics aside.
    """

    input: str
    max_length: int | None = None
    is_per_example: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.max_length is not None:
            fields.integer(f"encoder of '{self.input}': max_length", self.max_length)

    @property
    def attends(self) -> bool:
        """Whether it is called with the group's single features, too."""
        return True

    @abc.abstractmethod
    def build(self, group: SequenceGroup, *, rngs: nnx.Rngs) -> tuple[Any, int]:
        """Return the encoder, and the length of its output."""


registry: Registry[EncoderRecord] = Registry("encoder", EncoderRecord, descriptions=ENCODER_DESCRIPTIONS)


@registry.register("pooling_encoder")
@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolingRecord(EncoderRecord):
    """The sum or the mean of the elements: `PoolingEncoder`."""

    pooling_type: Pooling = "mean"
    is_per_example = True

    @property
    def attends(self) -> bool:
        return False

    def build(self, group: SequenceGroup, *, rngs: nnx.Rngs) -> tuple[Any, int]:
        return PoolingEncoder(self.pooling_type, self.max_length), group.sequences.dim


@registry.register("din_encoder")
@dataclasses.dataclass(frozen=True, kw_only=True)
class DINRecord(EncoderRecord):
    """The attention of DIN: `TargetAttention`."""

    attn_mlp: MLP
    is_per_example = True

    def build(self, group: SequenceGroup, *, rngs: nnx.Rngs) -> tuple[Any, int]:
        dim = group.sequences.dim
        encoder = TargetAttention(dim, group.queries.dim, self.attn_mlp, max_length=self.max_length, rngs=rngs)
        return encoder, dim


@registry.register("simple_attention")
@dataclasses.dataclass(frozen=True, kw_only=True)
class SimpleAttentionRecord(EncoderRecord):
    """Attention by inner products: `SimpleAttention`."""

    is_per_example = True

    def build(self, group: SequenceGroup, *, rngs: nnx.Rngs) -> tuple[Any, int]:
        if group.queries.dim != group.sequences.dim:
            raise ValueError(
                f"simple_attention of the group '{group.name}' needs a candidate as long as an element of the history, "
                f"{group.sequences.dim}; got {group.queries.dim}"
            )
        return SimpleAttention(self.max_length), group.sequences.dim


@registry.register("multi_window_din_encoder")
@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowRecord(EncoderRecord):
    """Attention to windows of the history: `WindowAttention`, whose windows are its length."""

    attn_mlp: MLP
    windows_len: tuple[int, ...]
    is_per_example = True

    def build(self, group: SequenceGroup, *, rngs: nnx.Rngs) -> tuple[Any, int]:
        if self.max_length is not None:
            raise ValueError("multi_window_din_encoder has the length of its windows; remove max_length")
        encoder = WindowAttention(group.sequences.dim, group.queries.dim, self.attn_mlp, self.windows_len, rngs=rngs)
        return encoder, encoder.dim


@registry.register("self_attention_encoder")
@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfAttentionRecord(EncoderRecord):
    """Attention of the elements to each other: `SelfAttention`."""

    multihead_attn_dim: int = 512
    num_heads: int = 8
    dropout: float = 0.0
    is_per_example = True

    @property
    def attends(self) -> bool:
        return False

    def build(self, group: SequenceGroup, *, rngs: nnx.Rngs) -> tuple[Any, int]:
        encoder = SelfAttention(
            group.sequences.dim,
            attention_dim=self.multihead_attn_dim,
            num_heads=self.num_heads,
            dropout_ratio=self.dropout,
            max_length=self.max_length,
            rngs=rngs,
        )
        return encoder, encoder.dim
