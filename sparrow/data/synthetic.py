"""Synthetic clicks with a planted truth, so that the best possible result is known."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt


@dataclasses.dataclass(frozen=True)
class Clicks:
    """Endless impressions whose click probability is known: a factorization machine over Zipf-distributed ids.

    Every id of every field has a weight and a short vector, drawn once from the seed. An impression draws one id per
    field and some counts ``x``, its true log-odds are
    ``bias + Σ weight + Σ_{i<j} <vector_i, vector_j> + Σ slope * log(1 + x)``, and its label is a coin thrown with that
    probability. No model can rank better than the true probability does.

    >>> batch = Clicks(fields=3, rows=100).batch(0, 4)
    >>> batch.ids.shape, batch.labels.shape, batch.probabilities.shape
    ((4, 3), (4,), (4,))

    Attributes:
      fields: categorical fields per impression.
      rows: distinct ids per field.
      factors: length of the vectors.
      exponent: the exponent of the Zipf distribution of ids.
      bias: the log-odds of an average impression.
      seed: the seed of all draws.
      counts: numeric columns per impression, integers of 0 or more.
    """

    fields: int = 8
    rows: int = 1000
    factors: int = 4
    exponent: float = 1.05
    bias: float = -1.0
    seed: int = 0
    counts: int = 0

    @dataclasses.dataclass(frozen=True)
    class Batch:
        """Impressions: ids (batch, fields), labels and true probabilities (batch,), counts (batch, counts)."""

        ids: npt.NDArray[np.int32]
        labels: npt.NDArray[np.float32]
        probabilities: npt.NDArray[np.float64]
        counts: npt.NDArray[np.int64]

    @functools.cached_property
    def _truth(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        rng = np.random.default_rng([self.seed, 1])
        weights = rng.normal(0.0, 1.2 / np.sqrt(self.fields), (self.fields, self.rows))
        pairs = self.fields * (self.fields - 1) / 2
        scale = (0.8 / np.sqrt(max(pairs, 1.0) * self.factors)) ** 0.5
        vectors = rng.normal(0.0, scale, (self.fields, self.rows, self.factors))
        popularity = np.cumsum(np.arange(1, self.rows + 1, dtype=np.float64) ** -self.exponent)
        return weights, vectors, popularity / popularity[-1]

    def batch(self, index: int, size: int) -> Batch:
        """Return the ``index``-th batch of ``size`` impressions; the same one every time."""
        weights, vectors, cumulative = self._truth
        rng = np.random.default_rng([self.seed, 2, index])
        ids = np.searchsorted(cumulative, rng.random((size, self.fields))).astype(np.int32)
        field = np.arange(self.fields)
        chosen = vectors[field, ids]  # (size, fields, factors)
        pairs = 0.5 * (np.square(chosen.sum(axis=1)) - np.square(chosen).sum(axis=1)).sum(axis=1)
        counts, slopes = self._counts(index, size)
        log_odds = self.bias + weights[field, ids].sum(axis=1) + pairs + np.log1p(counts) @ slopes
        probabilities = 1.0 / (1.0 + np.exp(-log_odds))
        labels = (rng.random(size) < probabilities).astype(np.float32)
        return self.Batch(ids, labels, probabilities, counts)

    def _counts(self, index: int, size: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return counts with a long tail, and the true slopes of their logarithms; other draws do not change."""
        slopes = np.random.default_rng([self.seed, 3]).normal(0.0, 0.6 / np.sqrt(max(self.counts, 1)), self.counts)
        drawn = np.random.default_rng([self.seed, 4, index]).normal(1.0, 1.5, (size, self.counts))
        return np.exp(drawn).astype(np.int64), slopes

    def batches(self, count: int, size: int, start: int = 0) -> Iterator[Batch]:
        """Yield ``count`` batches, the ``start``-th first."""
        for index in range(start, start + count):
            yield self.batch(index, size)
