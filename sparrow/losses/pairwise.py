"""Losses of pairs: what was chosen should score above what was not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks


def bpr(positive_logits: ArrayLike, negative_logits: ArrayLike, where: ArrayLike | None = None) -> jax.Array:
    """Bayesian personalized ranking, one value per positive.

    ::

        value[i] = mean over j of -log(sigmoid(positive_logits[i] - negative_logits[i, j]))

    Args:
      positive_logits: floating-point, ``(batch,)``: the score of what was chosen.
      negative_logits: floating-point, ``(batch, negatives)``, or ``(batch,)`` for one negative each.
      where: booleans of the shape of ``negative_logits``; negatives that are False (padding, accidental hits) are left
        out of the mean. An example that has no negative left has value 0.

    Returns:
      One value per positive, float32.

    >>> import numpy as np
    >>> values = bpr(jnp.array([1.0, 0.0]), jnp.array([[0.0, -1.0], [2.0, 0.0]]))
    >>> print(np.asarray(values).round(4))
    [0.2201 1.41  ]

    Reference: Rendle et al., `BPR: Bayesian Personalized Ranking from Implicit Feedback
    <https://arxiv.org/abs/1205.2618>`_.
    """
    positive = checks.floating("bpr", "positive_logits", positive_logits)
    negative = checks.floating("bpr", "negative_logits", negative_logits)
    checks.rank("bpr", "positive_logits", positive, "(batch,)")
    if negative.ndim not in (1, 2) or negative.shape[0] != positive.shape[0]:
        raise ValueError(
            f"bpr: negative_logits must have shape ({positive.shape[0]},) or ({positive.shape[0]}, negatives), "
            f"one row per positive, got {negative.shape}"
        )
    taken = jnp.ones(negative.shape, bool) if where is None else jnp.asarray(where)
    if taken.dtype != jnp.bool_:
        raise TypeError(f"bpr: where must be booleans, got {taken.dtype}")
    checks.shape("bpr", "where", taken, negative.shape, "that of the negative logits")
    if negative.ndim == 1:
        negative, taken = negative[:, None], taken[:, None]  # (batch, negatives)
    # The inner `where` keeps what padding holds, a NaN perhaps, out of the gradient too.
    pairs = jax.nn.softplus(jnp.where(taken, negative - positive[:, None], 0))
    count = jnp.sum(taken, axis=1)
    return jnp.sum(pairs, axis=1, where=taken) / jnp.maximum(count, 1)
