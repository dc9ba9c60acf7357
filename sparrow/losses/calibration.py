"""`Platt`: a scale and a shift of logits that make probabilities right on rows that were held out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

ROUNDS: Final = 50
"""Steps of Newton's method; about five are enough."""
PRIOR: Final = 1.0
"""The weight of the prior that probabilities are right already, in rows of variance 1: it matters for a few rows."""

LEAST: Final = 0.01
"""The least slope, so that the order of predictions stays."""


class Platt(NamedTuple):
    """Platt's scaling: ``sigmoid(slope * logit(p) + intercept)``. The order of predictions stays.

    >>> Platt(2.0, 0.0)(jnp.array([0.5, 0.9])).tolist()  # doctest: +ELLIPSIS
    [0.5, 0.987...]

    Reference: Platt, Probabilistic Outputs for Support Vector Machines, 1999.
    """

    slope: float
    intercept: float

    def __call__(self, probabilities: jax.Array) -> jax.Array:
        p = jnp.clip(probabilities, 1e-7, 1 - 1e-7)
        return jax.nn.sigmoid(self.slope * (jnp.log(p) - jnp.log1p(-p)) + self.intercept)

    @classmethod
    def of(cls, counts: Mapping[str, Any]) -> tuple[Platt, float]:
        """Return the scaling with the least log loss on rows of `sparrow.tasks.QualityCounts`, and that log loss.

        >>> counts = {"score": [0.01, 0.99], "positive": [10.0, 90.0], "negative": [90.0, 10.0]}
        >>> platt, loss = Platt.of(counts)
        >>> print(f"{platt(jnp.array([0.99]))[0]:.2f} {loss:.3f}")
        0.90 0.325
        """
        score, positive, negative = (np.asarray(counts[key], np.float64) for key in ("score", "positive", "negative"))
        inputs = np.stack([np.log(score) - np.log1p(-score), np.ones_like(score)])  # (2, bins)
        rows, given = positive + negative, np.array([1.0, 0.0])

        def losses(values: Any) -> Any:
            logits = values @ inputs
            return positive @ np.logaddexp(0, -logits) + negative @ np.logaddexp(0, logits)

        def total(values: Any) -> Any:
            return losses(values) + PRIOR / 2 * ((values - given) ** 2).sum()

        def least(found: Any, free: Any) -> Any:
            """Return the values of the least total, from ``found`` on; those that are not ``free`` stay."""
            for _ in range(ROUNDS):
                p = 1 / (1 + np.exp(-np.clip(found @ inputs, -500, 500)))
                slope = free * (inputs @ (rows * p - positive) + PRIOR * (found - given))
                bend = (inputs * (rows * p * (1 - p))) @ inputs.T * np.outer(free, free) + PRIOR * np.eye(2)
                step = np.linalg.solve(bend, slope)
                while total(found - step) > total(found) and np.abs(step).max() > 1e-9:
                    step = step / 2
                found = found - step
                if np.abs(step).max() < 1e-9:
                    break
            return found

        found = least(given, np.ones(2))
        if found[0] < LEAST:  # the model orders rows the wrong way: all become nearly the share of positives
            found = least(np.array([LEAST, 0.0]), np.array([0.0, 1.0]))
        return cls(*found.tolist()), float(losses(found) / rows.sum())
