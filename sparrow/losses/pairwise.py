"""Losses of pairs: a chosen item should score above the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated, Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow import fields
from sparrow.losses import _checks as checks
from sparrow.losses.base import Loss, register_loss
from sparrow.losses.outputs import MEANING, Positions, Towers
from sparrow.registry import answering


@register_loss("bpr")
@dataclasses.dataclass(frozen=True)
class BPR(Loss):
    """Bayesian personalized ranking, one value per positive.

    ::

        value[i] = mean over j of -log(sigmoid(positive_logits[i] - negative_logits[i, j]))

    Positive logits are floating-point, ``(batch,)``; negative ones ``(batch, negatives)``, or ``(batch,)`` for one
    negative each. ``where`` holds booleans of the shape of the negative logits: negatives that are False (padding,
    accidental hits) are left out of the mean, and an example that has no negative left has value 0.

    Attributes:
      session_name: the column of the batch that holds the session ids: an example with a label above 0 is to score
        above those of its session without one. None: a loss of two towers, where the item that a query chose is to
        score above other items.

    >>> import numpy as np
    >>> values = bpr(jnp.array([1.0, 0.0]), jnp.array([[0.0, -1.0], [2.0, 0.0]]))
    >>> print(np.asarray(values).round(4))
    [0.2201 1.41  ]

    Reference: Rendle et al., `BPR: Bayesian Personalized Ranking from Implicit Feedback
    <https://arxiv.org/abs/1205.2618>`_.
    """

    session_name: str | None = None

    label_kind = "binary"

    def __post_init__(self) -> None:
        if self.session_name is not None:
            fields.string("bpr: session_name", self.session_name)

    def __call__(
        self, positive_logits: ArrayLike, negative_logits: ArrayLike, where: ArrayLike | None = None
    ) -> jax.Array:
        positive = checks.floating("bpr", "positive_logits", positive_logits)
        negative = checks.floating("bpr", "negative_logits", negative_logits)
        checks.rank("bpr", "positive_logits", positive, "(batch,)")
        if negative.ndim not in (1, 2) or negative.shape[0] != positive.shape[0]:
            raise ValueError(
                f"bpr: negative_logits must have shape ({positive.shape[0]},) or ({positive.shape[0]}, negatives), "
                f"one row per positive, got {negative.shape}"
            )
        taken = _taken("bpr", where, negative)
        if negative.ndim == 1:
            negative, taken = negative[:, None], taken[:, None]  # (batch, negatives)
        return _softplus_sum(negative - positive[:, None], taken) / jnp.maximum(jnp.sum(taken, axis=1), 1)

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("query", "item") if self.session_name is None else ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        return () if self.session_name is None else (self.session_name,)

    @property
    def meaning(self) -> str:
        return MEANING if self.is_matching else "score between 0 and 1, to rank by"

    @property
    def is_from_0_to_1(self) -> bool:
        return not self.is_matching

    def prediction(self, output: Any) -> jax.Array:
        return output.own_scores() if self.is_matching else jax.nn.sigmoid(output)

    def values(self, output: Any, labels: Any, keys: Sequence[Any]) -> jax.Array:
        if isinstance(output, Positions):
            drawn = output.negatives is not None
            return output.compared(lambda own, others, where, _: self(own, others, where), drawn=drawn)
        if self.is_matching:
            towers: Towers = output
            return self(towers.own_scores(), *towers.other_scores())
        (sessions,) = keys
        rivals = (sessions[:, None] == sessions) & (labels[:, None] > 0) & (labels <= 0)  # (batch, batch)
        return self(output, jnp.broadcast_to(output, rivals.shape), rivals)


@answering
def bpr(positive_logits: ArrayLike, negative_logits: ArrayLike, where: ArrayLike | None = None) -> jax.Array:
    """Return one value per positive: `BPR`, which holds the equation."""
    return BPR()(positive_logits, negative_logits, where)


@register_loss("gbce")
@dataclasses.dataclass(frozen=True)
class GBCE(Loss):
    """Generalized binary cross entropy of the chosen item and sampled negatives, as in gSASRec.

    ::

        alpha = negatives expected per item of the catalog
        beta  = 1 - calibration (1 - alpha)
        value = (beta softplus(-positive) + Σ_j softplus(negative_j)) / (1 + number of negatives)

    Calibration 0 is plain binary cross entropy, whose scores grow too confident where few negatives are drawn;
    calibration 1 corrects for all of it.

    Called with:
      positive: scores of the chosen items, ``(batch,)``.
      negative: scores of the negatives, ``(batch, negatives)``.
      where: booleans of the shape of ``negative``: negatives that are False take no part.
      alpha: one number, or one per positive; None with calibration 0.

    Attributes:
      calibration: t of the paper, from 0 to 1.

    >>> import numpy as np
    >>> print(np.asarray(GBCE(0.0)(jnp.array([0.0]), jnp.array([[0.0, 0.0]]))).round(4))
    [0.6931]

    Reference: Petrov and Macdonald, `gSASRec: Reducing Overconfidence in Sequential Recommendation Trained with
    Negative Sampling <https://arxiv.org/abs/2308.07192>`_, RecSys 2023.
    """

    calibration: Annotated[float, fields.Bounds(at_least=0, at_most=1)] = 0.75

    label_kind = "none"
    negatives = "drawn"
    outputs = ("query", "item", "negatives")
    meaning = MEANING

    def __call__(
        self, positive: ArrayLike, negative: ArrayLike, where: ArrayLike | None = None, alpha: ArrayLike | None = None
    ) -> jax.Array:
        own, others = checks.floating("gbce", "positive", positive), checks.floating("gbce", "negative", negative)
        checks.rank("gbce", "positive", own, "(batch,)")
        if others.ndim != 2 or others.shape[0] != own.shape[0]:
            raise ValueError(f"gbce: negative must have shape ({own.shape[0]}, negatives), got {others.shape}")
        taken = _taken("gbce", where, others)
        if alpha is None and self.calibration:
            raise ValueError(
                "gbce: calibration needs alpha, the negatives expected per item; give it, or calibration 0"
            )
        share = jnp.ones(()) if alpha is None else jnp.minimum(checks.floating("gbce", "alpha", alpha), 1.0)
        if share.ndim:
            checks.shape("gbce", "alpha", share, own.shape, "one per positive")
        beta = 1 - self.calibration * (1 - share)
        return (beta * jax.nn.softplus(-own) + _softplus_sum(others, taken)) / (1 + taken.sum(axis=1))

    def prediction(self, output: Towers) -> jax.Array:
        return output.own_scores()

    def values(self, output: Towers | Positions, labels: Any, keys: Sequence[Any]) -> jax.Array:
        alpha = None if output.negative_log_q is None else jnp.exp(output.negative_log_q).mean()
        if isinstance(output, Positions):
            return output.compared(lambda own, others, where, _: self(own, others, where, alpha), drawn=True)
        return self(output.own_scores(), *output.other_scores(), alpha)


@answering
def gbce(
    positive: ArrayLike,
    negative: ArrayLike,
    where: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
    calibration: float = GBCE.calibration,
) -> jax.Array:
    """Return one value per positive: `GBCE`, which holds the equation."""
    return GBCE(calibration)(positive, negative, where, alpha)


def _taken(loss: str, where: ArrayLike | None, negative: jax.Array) -> jax.Array:
    """Return which negatives count: all by default."""
    taken = jnp.ones(negative.shape, bool) if where is None else jnp.asarray(where)
    if taken.dtype != jnp.bool_:
        raise TypeError(f"{loss}: where must be booleans, got {taken.dtype}")
    checks.shape(loss, "where", taken, negative.shape, "that of the negatives")
    return taken


def _softplus_sum(x: jax.Array, taken: jax.Array) -> jax.Array:
    """Return ``Σ_j softplus(x_j)`` over the negatives that count."""
    # The inner `where` keeps what padding holds, a NaN perhaps, out of the gradient too.
    return jnp.sum(jax.nn.softplus(jnp.where(taken, x, 0)), axis=1, where=taken)
