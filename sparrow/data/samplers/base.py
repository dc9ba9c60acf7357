"""`Sampler`: draws items for batches. A draw depends on the seed and the number of the batch alone."""

from __future__ import annotations

import abc
import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.data.batch import Batch
from sparrow.data.hashing import U64, mix64

ID: Final = "id"
"""The key of a drawn item's id in its `Batch`."""


class Sampler(abc.ABC):
    """Draws of items. Restoring a position of a pipeline draws the same again.

    Attributes:
      fingerprint: changes where the draws do.
    """

    fingerprint: str

    @abc.abstractmethod
    def add(self, batch: Batch, number: int) -> Batch:
        """Return the batch of this number with what is drawn for it. Many threads call it at a time."""

    def negative_rows(self, batch: Batch) -> npt.NDArray[np.bool_] | None:
        """Return the rows that were drawn as negatives, where they are examples like others; None: none are."""
        return None


def drawn_bits(seed: int, number: int, *shape: int, stream: int = 0) -> U64:
    """Return random bits for a batch: an array of this shape.

    ``stream`` tells apart the draws of one batch.

    >>> drawn_bits(0, 1, 2, 3).shape
    (2, 3)
    """
    key = mix64(mix64(np.array([seed], np.uint64)) ^ np.uint64(number))
    if stream:
        key = mix64(key ^ np.uint64(stream))
    return mix64(np.arange(int(np.prod(shape)), dtype=np.uint64) ^ key).reshape(shape)


def chances(bits: U64) -> npt.NDArray[np.float64]:
    """Return random bits as numbers in [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Choice:
    """Draws with replacement from ``size`` things: uniformly, or in proportion to weights.

    >>> Choice(3, np.array([0.0, 1.0, 0.0]))(drawn_bits(0, 0, 4)).tolist()
    [1, 1, 1, 1]
    """

    def __init__(self, size: int, weights: npt.NDArray[Any] | None = None) -> None:
        self.size = size
        self.weights: npt.NDArray[np.float64] | None = None
        self._limits: npt.NDArray[np.float64] | None = None
        if weights is not None:
            self.weights = np.asarray(weights, np.float64)
            sums = np.cumsum(self.weights)
            self._limits = sums / sums[-1]  # thing i: from the previous limit up to its own

    def log_expected(self, things: npt.NDArray[Any], count: int) -> npt.NDArray[np.float32]:
        """Return the logarithm of how often each thing is expected in ``count`` draws.

        A thing of weight 0, or an unknown one, -1, has the value of the rarest thing that is drawn.

        >>> np.exp(Choice(3, np.array([0.0, 1.0, 3.0])).log_expected(np.array([1, 2, 0, -1]), 8)).round(3).tolist()
        [2.0, 6.0, 2.0, 2.0]
        """
        logs = self._log_shares
        expected: npt.NDArray[np.float64] = np.where(things < 0, logs.min(), logs[things]) + np.log(count)
        return expected.astype(np.float32)

    @functools.cached_property
    def _log_shares(self) -> npt.NDArray[np.float64]:
        weights = np.ones(self.size) if self.weights is None else self.weights
        return np.asarray(np.log(np.maximum(weights, weights[weights > 0].min()) / weights.sum()))

    def __call__(self, bits: U64) -> npt.NDArray[np.int64]:
        if self._limits is None:
            return (bits % np.uint64(self.size)).astype(np.int64)
        return np.searchsorted(self._limits, chances(bits), side="right")
