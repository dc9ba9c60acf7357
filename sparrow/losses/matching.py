"""Softmax over candidate items, for two-tower models: the batch's own items, or items that were sampled.

Both losses are the cross entropy of one row of candidate logits per query, and differ only in where the candidates
come from. A candidate's logit is corrected for how often it turns up as a candidate (log Q), or popular items are
punished for being popular; and a candidate that the user of the query also chose (an accidental hit) is not a
negative, and is left out. A run does both by default.

Reference: Yi et al., `Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations
<https://research.google/pubs/pub48840/>`_, RecSys 2019.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sparrow.losses import _checks as checks
from sparrow.losses.base import Loss, register_loss
from sparrow.losses.outputs import MEANING, Positions, Towers, mixed_columns, not_chosen, softmax_values, users
from sparrow.losses.pointwise import cross_entropy
from sparrow.registry import answering


@dataclasses.dataclass(frozen=True)
class CandidateSoftmax(Loss):
    """The base of both losses."""

    temperature: checks.PositiveScalar = 1.0
    label_smoothing: checks.ShareScalar = 0.0
    log_q: bool = True

    label_kind = "none"
    meaning = f"{MEANING}, divided by the temperature"
    outputs: ClassVar[tuple[str, ...]] = ("query", "item")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.log_q, bool):
            raise TypeError(
                f"{self.name}: log_q must be true or false, got {self.log_q!r}; arrays are given in the call"
            )

    @property
    def corrects_frequency(self) -> bool:
        return self.log_q

    def prediction(self, output: Towers) -> jax.Array:
        return output.own_scores() / self.temperature

    def at_positions(self, output: Positions) -> jax.Array:
        of = functools.partial(softmax_values, temperature=self.temperature, label_smoothing=self.label_smoothing)
        return output.compared(of, drawn=self.negatives == "drawn", log_q=self.log_q)


@register_loss("in_batch_softmax")
@dataclasses.dataclass(frozen=True)
class InBatchSoftmax(CandidateSoftmax):
    """Softmax cross entropy in which the items of the other examples of the batch are the negatives.

    ::

        logits[i, j] = dot(query[i], item[j]) / temperature - log_q[j]
        takes_part[i, j] = i == j or the user of query i chose item j in no row of the batch
        value[i] = softmax cross entropy of logits[i], over the j that take part, with label i

    Called with:
      query: floating-point embeddings, ``(batch, dim)``. Normalize them beforehand for a cosine similarity.
      item: ``(items, dim)``, as many items as queries or more; ``item[i]`` is what ``query[i]`` chose, and rows beyond
        the batch are negatives for all queries.
      log_q: ``(items,)``, the logarithm of each item's probability to be in a batch; None corrects nothing.
      item_ids: ``(items,)`` integers (or a NumPy array of strings). Another item with the id of the query's own is left
        out of its softmax; None leaves nothing out.
      user_ids: ``(batch,)``, the users of the queries, given with ``item_ids``. All items that a user chose in the
        batch are left out of the softmax of the user's other rows; None: each row is a user of its own.

    Attributes:
      temperature: above 0; may be an array, to be learned.
      label_smoothing: the share of the target that is spread evenly over all candidates that take part, in [0, 1).
      log_q: whether a run corrects by the frequency of each item in the training data; false for none.

    >>> import numpy as np
    >>> item = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> print(np.asarray(in_batch_softmax(item, item)).round(4))
    [0.862  0.862  0.5514]
    >>> values = in_batch_softmax(item, item, item_ids=jnp.array([5, 5, 6]))  # the first two chose the same item
    >>> print(np.asarray(values).round(4))
    [0.3133 0.3133 0.5514]
    """

    negatives = "batch"

    def __call__(
        self,
        query: ArrayLike,
        item: ArrayLike,
        *,
        log_q: ArrayLike | None = None,
        item_ids: ArrayLike | None = None,
        user_ids: ArrayLike | None = None,
    ) -> jax.Array:
        loss = "in_batch_softmax"
        query, item = checks.floating(loss, "query", query), checks.floating(loss, "item", item)
        checks.rank(loss, "query", query, "(batch, dim)")
        batch, dim = query.shape
        if item.ndim != 2 or item.shape[0] < batch or item.shape[1] != dim:
            raise ValueError(
                f"{loss}: item must have shape (items, {dim}) with {batch} items or more, one per query first, "
                f"got {item.shape}"
            )
        items = item.shape[0]
        logits = _dot("id,jd->ij", query, item) / self.temperature  # (batch, items)
        if log_q is not None:
            log_q = checks.floating(loss, "log_q", log_q)
            checks.shape(loss, "log_q", log_q, (items,), "one per item")
            logits = logits - log_q
        takes_part = None
        if item_ids is not None:
            (ids,) = checks.keys(loss, "item_ids", item_ids)
            checks.shape(loss, "item_ids", ids, (items,), "one per item")
            takes_part = not_chosen(ids[:batch], ids, users(loss, user_ids, batch)) | jnp.eye(batch, items, dtype=bool)
        elif user_ids is not None:
            raise ValueError(f"{loss}: user_ids was given without item_ids; give both or neither")
        return cross_entropy(logits, jnp.arange(batch), self.label_smoothing, takes_part)

    def values(self, output: Towers | Positions, labels: Any, keys: Sequence[Any]) -> jax.Array:
        if isinstance(output, Positions):
            return self.at_positions(output)
        log_q = output.positive_log_q if self.log_q else None
        return self(output.query, output.item, log_q=log_q, item_ids=output.positive_ids, user_ids=output.users)


@answering
def in_batch_softmax(
    query: ArrayLike,
    item: ArrayLike,
    *,
    temperature: checks.Scalar = InBatchSoftmax.temperature,
    log_q: ArrayLike | None = None,
    item_ids: ArrayLike | None = None,
    user_ids: ArrayLike | None = None,
    label_smoothing: checks.Scalar = InBatchSoftmax.label_smoothing,
) -> jax.Array:
    """Return one value per query: `InBatchSoftmax`, which holds the equation."""
    return InBatchSoftmax(temperature, label_smoothing)(query, item, log_q=log_q, item_ids=item_ids, user_ids=user_ids)


@register_loss("sampled_softmax")
@dataclasses.dataclass(frozen=True)
class SampledSoftmax(CandidateSoftmax):
    """Softmax cross entropy of the chosen item against items that were sampled as negatives.

    ::

        logits[i, 0]     = dot(query[i], positive[i]) / temperature - positive_log_q[i]
        logits[i, 1 + j] = dot(query[i], negatives[j]) / temperature - negative_log_q[j]
        takes_part[i, 1 + j] = the user of query i chose negative j in no row of the batch
        value[i] = softmax cross entropy of logits[i], over the columns that take part, with label 0

    Called with:
      query: floating-point embeddings, ``(batch, dim)``. Normalize them beforehand for a cosine similarity.
      positive: ``(batch, dim)``; ``positive[i]`` is what ``query[i]`` chose.
      negatives: ``(negatives, dim)``, shared by all queries, or ``(batch, negatives, dim)``, each query its own.
      positive_log_q: ``(batch,)``, the logarithm of each item's probability to be sampled; None corrects nothing.
      negative_log_q: the same for the negatives, of their shape without ``dim``; given with ``positive_log_q``.
      positive_ids: ``(batch,)`` integers (or a NumPy array of strings). A negative with the id of the query's positive
        is left out of the softmax; None leaves nothing out.
      negative_ids: the same for the negatives, of their shape without ``dim``; given with ``positive_ids``.
      user_ids: ``(batch,)``, the users of the queries, given with the ids. All items that a user chose in the batch are
        left out of the softmax of the user's rows; None: each row is a user of its own.

    Attributes:
      temperature: above 0; may be an array, to be learned.
      label_smoothing: the share of the target that is spread evenly over all candidates that take part, in [0, 1).
      log_q: whether a run corrects by the weights that the items are drawn with; false for none.

    >>> import numpy as np
    >>> query, positive = jnp.array([[1.0, 0.0]]), jnp.array([[1.0, 0.0]])
    >>> negatives = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    >>> print(np.asarray(sampled_softmax(query, positive, negatives)).round(4))
    [0.862]
    >>> ids = {"positive_ids": jnp.array([5]), "negative_ids": jnp.array([6, 5])}  # the second is no negative
    >>> print(np.asarray(sampled_softmax(query, positive, negatives, **ids)).round(4))
    [0.3133]

    Reference: Jean et al., `On Using Very Large Target Vocabulary <https://arxiv.org/abs/1412.2007>`_.
    """

    negatives = "drawn"
    outputs = ("query", "item", "negatives")

    def __call__(
        self,
        query: ArrayLike,
        positive: ArrayLike,
        negatives: ArrayLike,
        *,
        positive_log_q: ArrayLike | None = None,
        negative_log_q: ArrayLike | None = None,
        positive_ids: ArrayLike | None = None,
        negative_ids: ArrayLike | None = None,
        user_ids: ArrayLike | None = None,
    ) -> jax.Array:
        loss = "sampled_softmax"
        query = checks.floating(loss, "query", query)
        positive = checks.floating(loss, "positive", positive)
        negatives = checks.floating(loss, "negatives", negatives)
        checks.rank(loss, "query", query, "(batch, dim)")
        checks.shape(loss, "positive", positive, query.shape, "that of the queries")
        (batch, dim), count = query.shape, negatives.shape[-2] if negatives.ndim > 1 else 0
        if negatives.shape not in ((count, dim), (batch, count, dim)):
            raise ValueError(
                f"{loss}: negatives must have shape (negatives, {dim}) or ({batch}, negatives, {dim}), "
                f"got {negatives.shape}"
            )
        per_negative = negatives.shape[:-1]  # (negatives,) or (batch, negatives)
        others = _dot("id,jd->ij" if negatives.ndim == 2 else "id,ijd->ij", query, negatives)
        log_q = _pair(loss, ("positive_log_q", positive_log_q), ("negative_log_q", negative_log_q))
        if log_q is not None:
            of_positive, of_negative = (checks.floating(loss, "log_q", values) for values in log_q)
            checks.shape(loss, "positive_log_q", of_positive, (batch,), "one per positive")
            checks.shape(loss, "negative_log_q", of_negative, per_negative, "one per negative")
            log_q = of_positive, jnp.broadcast_to(of_negative, others.shape)
        takes_part = None
        ids = _pair(loss, ("positive_ids", positive_ids), ("negative_ids", negative_ids))
        if ids is not None:
            of_positive, of_negative = checks.keys(loss, "ids", *ids)
            checks.shape(loss, "positive_ids", of_positive, (batch,), "one per positive")
            checks.shape(loss, "negative_ids", of_negative, per_negative, "one per negative")
            takes_part = not_chosen(of_positive, of_negative, users(loss, user_ids, batch))
        elif user_ids is not None:
            raise ValueError(f"{loss}: user_ids was given without positive_ids and negative_ids; give all or none")
        return self._against(_dot("id,id->i", query, positive), others, takes_part, log_q)

    def _against(self, own: jax.Array, others: jax.Array, takes_part: Any, log_q: Any) -> jax.Array:
        """Return the equation, of scores ``(batch,)`` and ``(batch, negatives)``, and log Q of both (or None)."""
        logits = jnp.concatenate([own[:, None], others], axis=1) / self.temperature  # (batch, 1 + negatives)
        if log_q is not None:
            logits = logits - jnp.concatenate([log_q[0][:, None], log_q[1]], axis=1)
        if takes_part is not None:
            takes_part = jnp.pad(takes_part, ((0, 0), (1, 0)), constant_values=True)
        return cross_entropy(logits, jnp.zeros(own.shape, jnp.int32), self.label_smoothing, takes_part)

    def values(self, output: Towers | Positions, labels: Any, keys: Sequence[Any]) -> jax.Array:
        if isinstance(output, Positions):
            return self.at_positions(output)
        if output.negatives is None:
            raise ValueError("sampled_softmax: the towers have no negatives; draw some, or use in_batch_softmax")
        if output.takes_part is not None:
            (others, takes_part), log_q = output.other_scores(), None
            if self.log_q and output.positive_log_q is not None and output.negative_log_q is not None:
                log_q = output.positive_log_q, mixed_columns(output.negative_log_q, *others.shape)
            return self._against(_dot("id,id->i", output.query, output.item), others, takes_part, log_q)
        known: dict[str, Any] = {"positive_ids": output.positive_ids, "negative_ids": output.negative_ids}
        known["user_ids"] = output.users
        if self.log_q:
            known |= {"positive_log_q": output.positive_log_q, "negative_log_q": output.negative_log_q}
        return self(output.query, output.item, output.negatives, **known)


@answering
def sampled_softmax(
    query: ArrayLike,
    positive: ArrayLike,
    negatives: ArrayLike,
    *,
    temperature: checks.Scalar = SampledSoftmax.temperature,
    positive_log_q: ArrayLike | None = None,
    negative_log_q: ArrayLike | None = None,
    positive_ids: ArrayLike | None = None,
    negative_ids: ArrayLike | None = None,
    user_ids: ArrayLike | None = None,
    label_smoothing: checks.Scalar = SampledSoftmax.label_smoothing,
) -> jax.Array:
    """Return one value per query: `SampledSoftmax`, which holds the equation."""
    return SampledSoftmax(temperature, label_smoothing)(
        query,
        positive,
        negatives,
        positive_log_q=positive_log_q,
        negative_log_q=negative_log_q,
        positive_ids=positive_ids,
        negative_ids=negative_ids,
        user_ids=user_ids,
    )


def _dot(axes: str, a: jax.Array, b: jax.Array) -> jax.Array:
    # In full float32 on every device: TF32 keeps ten bits, and a small temperature makes the rest visible.
    return jnp.einsum(axes, a, b, precision=jax.lax.Precision.HIGHEST)


def _pair(
    loss: str, first: tuple[str, ArrayLike | None], second: tuple[str, ArrayLike | None]
) -> tuple[ArrayLike, ArrayLike] | None:
    """Both arrays, or None when neither was given; half a correction is refused."""
    (first_name, a), (second_name, b) = first, second
    if a is not None and b is not None:
        return a, b
    if a is not None or b is not None:
        given, missing = (first_name, second_name) if b is None else (second_name, first_name)
        raise ValueError(f"{loss}: {given} was given without {missing}; give both or neither")
    return None
