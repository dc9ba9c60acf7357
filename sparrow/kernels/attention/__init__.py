"""Attention within jagged sequences, on three backends; ``padded`` is the reference."""

from sparrow.kernels.attention.kind import Past
from sparrow.kernels.attention.operation import jagged_attention, portable_attention
from sparrow.kernels.attention.padded import token_places
from sparrow.kernels.attention.time_buckets import TimeBucket, time_buckets
