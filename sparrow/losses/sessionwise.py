"""JRC: ranking within a session and calibration over all examples, learned by the same two logits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow import fields
from sparrow.losses import _checks as checks
from sparrow.losses.base import Loss, register_loss
from sparrow.losses.pointwise import cross_entropy
from sparrow.registry import answering


@register_loss("jrc")
@dataclasses.dataclass(frozen=True)
class JRC(Loss):
    """Joint ranking and calibration, one value per example.

    Every example has two logits, one for "not clicked" and one for "clicked". The calibration part asks which of its
    own two logits wins. The ranking part asks, in the column ``c`` of its label, whether the example wins against the
    examples of the same session that have the other label::

        calibration[i] = -log_softmax(logits[i])[c]                                        with c = labels[i]
        rivals[i]      = {j : sessions[j] == sessions[i] and labels[j] != c}
        ranking[i]     = log(exp(logits[i, c]) + sum_{j in rivals[i]} exp(logits[j, c])) - logits[i, c]
        value[i]       = alpha * calibration[i] + (1 - alpha) * ranking[i]

    An example without rivals (its session, or the complete batch, has a single class) has a ranking part of 0, and its
    value and gradient are finite.

    Time is that of a sort of the sessions and memory is linear in the batch: no matrix of pairs is made. The same input
    gives the same bits, on a GPU too.

    Logits are floating-point, ``(batch, 2)``. Labels are 0 or 1, ``(batch,)``, integers or booleans; any other value
    gives NaN. Sessions are ``(batch,)``, JAX integers or a NumPy array of integers of any width or of strings; examples
    of one session carry the same id, in any order.

    Attributes:
      session_name: the column of the batch that holds the session ids.
      alpha: the share of the calibration part, in [0, 1].

    >>> import numpy as np
    >>> logits = jnp.array([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8]])
    >>> values = jrc(logits, jnp.array([0, 1, 1]), sessions=jnp.array([7, 7, 8]))
    >>> print(np.asarray(values).round(4))
    [0.4043 0.4753 0.2187]

    Reference: Sheng et al., `Joint Optimization of Ranking and Calibration with Contextualized Hybrid Model
    <https://arxiv.org/abs/2208.06164>`_, KDD 2023.
    """

    session_name: str
    alpha: Annotated[checks.Scalar, fields.Bounds(at_least=0, at_most=1)] = 0.5

    label_kind = "class"
    num_classes = 2
    is_probability = True
    meaning = "probability"

    def __post_init__(self) -> None:
        super().__post_init__()
        fields.string("jrc: session_name", self.session_name)

    def __call__(self, logits: ArrayLike, labels: ArrayLike, sessions: ArrayLike) -> jax.Array:
        logits, labels = checks.floating("jrc", "logits", logits), checks.integer("jrc", "labels", labels)
        (sessions,) = checks.keys("jrc", "sessions", sessions)
        if logits.ndim != 2 or logits.shape[1] != 2:
            raise ValueError(f"jrc: logits must have shape (batch, 2), got {logits.shape}")
        batch = logits.shape[0]
        checks.shape("jrc", "labels", labels, (batch,), "one per row of the logits")
        checks.shape("jrc", "sessions", sessions, (batch,), "one per row of the logits")
        calibration = cross_entropy(logits, labels, label_smoothing=0.0)
        ranking: jax.Array = _ranking(logits, labels == 1, sessions)
        return self.alpha * calibration + (1 - self.alpha) * ranking

    @property
    def key_columns(self) -> tuple[str, ...]:
        return (self.session_name,)

    def prediction(self, output: jax.Array) -> jax.Array:
        return jax.nn.softmax(output, axis=-1)[:, 1]


@answering
def jrc(logits: ArrayLike, labels: ArrayLike, sessions: ArrayLike, alpha: checks.Scalar = JRC.alpha) -> jax.Array:
    """Return one value per example: `JRC`, which holds the equation."""
    return JRC("sessions", alpha)(logits, labels, sessions)


@jax.jit  # one program also where the caller does not compile: these are many small operations
def _ranking(logits: jax.Array, positive: jax.Array, sessions: jax.Array) -> jax.Array:
    """Return the ranking part: softplus of (log-sum-exp over the rivals, minus the example's own logit)."""
    if sessions.size == 0:
        return jnp.zeros(sessions.shape, logits.dtype)
    order = jnp.argsort(sessions)
    logits, positive, sessions = (
        array.at[order].get(unique_indices=True, mode="promise_in_bounds") for array in (logits, positive, sessions)
    )  # the gradient is known to write every row once
    session = _Session(
        first=jnp.searchsorted(sessions, sessions, side="left"),
        last=jnp.searchsorted(sessions, sessions, side="right") - 1,
    )
    own = jnp.where(positive, logits[:, 1], logits[:, 0])
    # An example meets its rivals in their column, not its own.
    as_rival = jnp.where(positive, logits[:, 0], logits[:, 1])

    largest = _over_session(jnp.maximum, -jnp.inf, jax.lax.stop_gradient(as_rival), positive, session)  # (batch, 2)
    beside, opposite = _pick(largest, positive), _pick(largest, ~positive)
    total = _sum_over_rivals(jnp.exp(as_rival - beside), positive, session)
    has_rivals = total > 0  # the largest rival alone adds 1
    # The inner `where` keeps the logarithm of 0 out of the gradient as well as out of the value.
    log_sum_exp = jnp.where(has_rivals, opposite, 0) + jnp.log(jnp.where(has_rivals, total, 1))
    ranking = jnp.where(has_rivals, jax.nn.softplus(log_sum_exp - own), 0)
    return jnp.zeros_like(ranking).at[order].set(ranking, unique_indices=True)


class _Session(NamedTuple):
    """For each example, where its session lies in the sorted batch."""

    first: jax.Array  # (batch,) the session's first row
    last: jax.Array  # (batch,) its last


@jax.custom_vjp
def _sum_over_rivals(values: jax.Array, positive: jax.Array, session: _Session) -> jax.Array:
    """For each example, the sum of ``values`` over its rivals. To be rivals is mutual: the map is its own transpose."""
    return _pick(_over_session(jnp.add, 0, values, positive, session), ~positive)


_sum_over_rivals.defvjp(
    lambda values, positive, session: (_sum_over_rivals(values, positive, session), (positive, session)),
    lambda kept, gradient: (_sum_over_rivals(gradient, *kept), None, None),
)


def _over_session(
    combine: Callable[[jax.Array, jax.Array], jax.Array],
    identity: float,
    values: jax.Array,
    positive: jax.Array,
    session: _Session,
) -> jax.Array:
    """For each example, ``values`` combined over the negatives and over the positives of its session: (batch, 2).

    Each row reaches back over 1, 2, 4, ... rows of its session, always in the same order: a scatter-add would be
    shorter, and on a GPU would give other bits at every run.
    """
    row = jnp.arange(values.shape[0])
    longest = jnp.max(session.last - session.first) + 1

    def reach_twice_as_far(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reach, columns = state
        before = jnp.where((row - reach >= session.first)[:, None], columns[row - reach], identity)
        return 2 * reach, combine(columns, before)

    columns = jnp.where(jnp.stack([~positive, positive], axis=1), values[:, None], identity)
    start = (jnp.ones((), row.dtype), columns)
    _, columns = jax.lax.while_loop(lambda state: state[0] < longest, reach_twice_as_far, start)
    return columns[session.last]


def _pick(columns: jax.Array, positive: jax.Array) -> jax.Array:
    return jnp.where(positive, columns[:, 1], columns[:, 0])
