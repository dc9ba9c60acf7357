"""Attention within jagged sequences, on three backends; ``padded`` is the reference."""

from sparrow.kernels.attention.gated import gated_attention
from sparrow.kernels.attention.kind import Past, TimeBucket, time_buckets
from sparrow.kernels.attention.operation import jagged_attention, portable_attention
from sparrow.kernels.attention.padded import masked_softmax, token_places
