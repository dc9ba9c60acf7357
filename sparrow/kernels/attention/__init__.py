"""Attention within jagged sequences, on three backends; ``padded`` is the reference."""

from sparrow.kernels.attention.operation import jagged_attention

__all__ = ["jagged_attention"]
