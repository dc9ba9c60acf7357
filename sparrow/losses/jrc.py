"""JRC: ranking within a session and calibration over all examples, learned by the same two logits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks
from sparrow.losses.softmax import cross_entropy


def jrc(logits: ArrayLike, labels: ArrayLike, sessions: ArrayLike, alpha: checks.Scalar = 0.5) -> jax.Array:
    """Joint ranking and calibration, one value per example.

    Every example has two logits, one for "not clicked" and one for "clicked". The calibration part asks which of its
    own two logits wins. The ranking part asks, in the column ``c`` of its label, whether the example wins against the
    examples of the same session that have the other label::

        calibration[i] = -log_softmax(logits[i])[c]                                        with c = labels[i]
        rivals[i]      = {j : sessions[j] == sessions[i] and labels[j] != c}
        ranking[i]     = log(exp(logits[i, c]) + sum_{j in rivals[i]} exp(logits[j, c])) - logits[i, c]
        value[i]       = alpha * calibration[i] + (1 - alpha) * ranking[i]

    An example without rivals (its session, or the whole batch, has a single class) has a ranking part of 0, and its
    value and gradient are finite.

    Time is that of a sort of the sessions and memory is linear in the batch: no matrix of pairs is made.

    Args:
      logits: floating-point, ``(batch, 2)``.
      labels: 0 or 1, ``(batch,)``, integers or booleans. Any other value gives NaN.
      sessions: ``(batch,)``; examples of one session carry the same id, in any order. JAX integers, or a NumPy array
        of integers of any width or of strings.
      alpha: the share of the calibration part, in [0, 1].

    Returns:
      One value per example, float32.

    >>> import numpy as np
    >>> logits = jnp.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])
    >>> values = jrc(logits, jnp.array([0, 1, 1]), sessions=jnp.array([7, 7, 8]))
    >>> print(np.asarray(values).round(4))
    [0.4043 0.4753 0.2187]

    Reference: Sheng et al., `Joint Optimization of Ranking and Calibration with Contextualized Hybrid Model
    <https://arxiv.org/abs/2208.06164>`_, KDD 2023.
    """
    checks.number("jrc", "alpha", alpha, 0, 1, "[]")
    logits, labels = checks.floating("jrc", "logits", logits), checks.integer("jrc", "labels", labels)
    (sessions,) = checks.keys("jrc", "sessions", sessions)
    if logits.ndim != 2 or logits.shape[1] != 2:
        raise ValueError(f"jrc: logits must have shape (batch, 2), got {logits.shape}")
    batch = logits.shape[0]
    checks.shape("jrc", "labels", labels, (batch,), "one per row of the logits")
    checks.shape("jrc", "sessions", sessions, (batch,), "one per row of the logits")
    calibration = cross_entropy(logits, labels, label_smoothing=0.0)
    return alpha * calibration + (1 - alpha) * _ranking(logits, labels == 1, sessions)


@jax.jit  # one program also where the caller does not compile: these are many small operations
def _ranking(logits: jax.Array, positive: jax.Array, sessions: jax.Array) -> jax.Array:
    """The ranking part: softplus of (log-sum-exp over the rivals, minus the example's own logit)."""
    batch = logits.shape[0]
    if batch == 0:
        return jnp.zeros((0,), logits.dtype)
    _, session = jnp.unique(sessions, return_inverse=True, size=batch)
    # Groups 2s and 2s + 1 hold the negatives and the positives of session s. Examples of one group are rivals of
    # the same examples, those of the other group, and meet them in the column that is not their own.
    own_group, rival_group = 2 * session + positive, 2 * session + ~positive
    own = jnp.where(positive, logits[:, 1], logits[:, 0])
    as_rival = jnp.where(positive, logits[:, 0], logits[:, 1])

    largest = jax.ops.segment_max(jax.lax.stop_gradient(as_rival), own_group, num_segments=2 * batch)
    total = jax.ops.segment_sum(
        jnp.exp(as_rival - largest[own_group]), own_group, num_segments=2 * batch
    )  # at least 1 in a group that has a member, 0 in one that has none
    largest, total = largest[rival_group], total[rival_group]
    has_rivals = total > 0
    # The inner `where` keeps the logarithm of 0 out of the gradient as well as out of the value.
    log_sum_exp = jnp.where(has_rivals, largest, 0) + jnp.log(jnp.where(has_rivals, total, 1))
    return jnp.where(has_rivals, jax.nn.softplus(log_sum_exp - own), 0)
