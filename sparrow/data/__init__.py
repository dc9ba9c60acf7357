"""Data: where batches come from."""

from sparrow.data.synthetic import Clicks

__all__ = ["Clicks"]
