"""Metrics of ranked lists: Recall@K, HitRate@K, NDCG@K, MRR, MAP@K. Fixed size, jittable; `ByGroup` for flat rows.

A list is one query (a user, a session) with its candidates: predictions are scores ``(lists, candidates)``,
labels the relevance of each candidate, or ``(lists,)`` the index of the one that is relevant (the diagonal of an
in-batch similarity matrix is ``arange(n)``). Weights are per list. A short list is padded with score -inf and
relevance 0.

Among equal scores the less relevant candidate is ranked first. So the order of the columns never matters, and a model
that scores all candidates alike gets the worst value, not the best one by luck of the layout.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sparrow.fields import Count
from sparrow.metrics import sums
from sparrow.metrics.fixed import FixedSizeMetric, ratio, weighted
from sparrow.metrics.grouped import GroupedMetric
from sparrow.metrics.inputs import NOT_NEGATIVE, ORDERED, CheckedRows, Domain, class_index
from sparrow.metrics.order import Codes, float_codes, order_by, starts
from sparrow.metrics.protocol import register_metric
from sparrow.metrics.rows import Columns
from sparrow.metrics.sums import Sum


class Lists(NamedTuple):
    """Ranked lists, in any layout: arrays with an entry per candidate, and how to add up a list's entries.

    The entry at a place belongs to the candidate that is ranked there; ``ideal`` to the one that would be
    if relevance decided.
    """

    relevance: Any
    ideal: Any
    rank: Any  # 1, 2, ... within each list
    hits: Any  # relevant candidates up to this rank, itself included
    per_list: Callable[[Any], Any]

    @property
    def relevant(self) -> Any:
        """The number of relevant candidates, per list."""
        return self.per_list(1.0 * (self.relevance > 0))


class ListValues(NamedTuple):
    """Per list: its value, and its share in the mean. A share of 0 leaves the list out."""

    value: Any
    share: Any


class RankingMetric(FixedSizeMetric):
    """The mean over lists of one number per list. Lists without a relevant candidate are left out, and counted."""

    top_k: int | None

    @abc.abstractmethod
    def list_values(self, lists: Lists, xp: ModuleType) -> ListValues:
        """Return the equation, over ranked lists in any layout; ``xp`` is NumPy or ``jax.numpy``."""

    def within(self, lists: Lists) -> Any:
        """Which ranks count."""
        return lists.rank > 0 if self.top_k is None else lists.rank <= self.top_k

    def hits(self, lists: Lists) -> Any:
        """Return the number of relevant candidates at the ranks that count, per list."""
        return lists.per_list(1.0 * ((lists.relevance > 0) & self.within(lists)))

    _prediction_domain = ORDERED

    _label_domain = NOT_NEGATIVE

    def _matched(self, predictions: Any, labels: Any) -> tuple[Any, Any, Domain]:
        if predictions.ndim != 2:
            raise ValueError(
                f"{self.name}.update: predictions have shape {predictions.shape}; give (lists, candidates), "
                f"or use ByGroup({self.name}(...)) for flat rows with groups"
            )
        if labels.ndim == 1:
            is_index = class_index(predictions.shape[1]).contains(jnp, labels)
            labels = jnp.where(is_index, labels, jnp.nan)  # NaN: a label at fault
        elif labels.shape != predictions.shape:
            raise ValueError(
                f"{self.name}.update: predictions have shape {predictions.shape} and labels {labels.shape}; "
                "give one relevance per candidate, or the index of the relevant one"
            )
        return predictions, labels, self._label_domain

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"total": (), "share": (), "left_out": ()}

    def _sums(self, batch: CheckedRows) -> dict[str, Sum]:
        ranked = rank_one if batch.labels.ndim == 1 else rank_matrix
        value, share = self.list_values(ranked(batch.predictions, batch.labels), jnp)
        share = weighted(batch.weights, share)
        used = share > 0
        left_out = weighted(batch.weights, jnp.where(used, 0.0, 1.0)) > 0
        columns = [jnp.where(used, share * value, 0), share, left_out.astype(jnp.float32)]
        total = sums.reduce(jnp.stack(columns, axis=1))
        return {"total": total[:, 0], "share": total[:, 1], "left_out": total[:, 2]}

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        return ratio(xp, total["total"], total["share"])

    def _undefined(self, total: Mapping[str, Any]) -> str:
        return "no list has a relevant candidate" if total["left_out"] else super()._undefined(total)

    def _details(self, total: Mapping[str, Any]) -> dict[str, Any]:
        return {"left_out_lists": int(total["left_out"])}


def rank_matrix(scores: jax.Array, relevance: jax.Array) -> Lists:
    """List as the rows of a matrix, by descending score, then ascending relevance."""
    _, ranked = jax.lax.sort((-scores, relevance), dimension=1, num_keys=2)
    rank = jnp.arange(1, scores.shape[1] + 1, dtype=jnp.float32)
    ideal = -jnp.sort(-relevance, axis=1)
    hits = jnp.cumsum(ranked > 0, axis=1)
    return Lists(ranked, ideal, jnp.broadcast_to(rank, ranked.shape), hits, lambda x: jnp.sum(x, axis=1))


def rank_one(scores: jax.Array, relevant: jax.Array) -> Lists:
    """List the two places that count where one candidate is relevant: the first, and its own. Nothing is sorted.

    Its rank is the number of candidates with its score or a larger one, itself included.
    """
    own = jnp.take_along_axis(scores, relevant.astype(jnp.int32)[:, None], axis=1)
    at = jnp.sum(scores >= own, axis=1, dtype=jnp.int32).astype(jnp.float32)
    one, is_first = jnp.ones_like(at), (at == 1).astype(jnp.float32)
    places = {
        "relevance": (is_first, one - is_first),
        "ideal": (one, jnp.zeros_like(at)),
        "rank": (one, at),
        "hits": (is_first, one),
    }
    return Lists(
        **{name: jnp.stack(pair, axis=1) for name, pair in places.items()}, per_list=lambda x: jnp.sum(x, axis=1)
    )


@register_metric("recall_at_k")
@dataclasses.dataclass(frozen=True)
class RecallAtK(RankingMetric):
    """The share of the relevant candidates that are among the first ``top_k``.

    ``average``: "micro" adds up over all lists, ``sum w hits / sum w relevant`` (TorchEasyRec's); "macro" is the
    mean over lists of ``hits / relevant``.

    >>> metric = RecallAtK(top_k=2)
    >>> metric.compute(metric.update(metric.init(), [[0.9, 0.1, 0.5, 0.2], [0.3, 0.4, 0.1, 0.2]],
    ...                              [[1, 0, 1, 0], [0, 0, 1, 1]]))
    0.5
    """

    top_k: Count = 5
    average: Literal["micro", "macro"] = "micro"

    def list_values(self, lists: Lists, xp: ModuleType) -> ListValues:
        relevant, hits = lists.relevant, self.hits(lists)
        share = relevant if self.average == "micro" else 1.0 * (relevant > 0)
        return ListValues(hits / xp.maximum(relevant, 1), share)


@register_metric("hit_rate_at_k")
@dataclasses.dataclass(frozen=True)
class HitRateAtK(RankingMetric):
    """The share of lists with at least one relevant candidate among the first ``top_k``.

    >>> metric = HitRateAtK(top_k=1)
    >>> metric.compute(metric.update(metric.init(), [[0.9, 0.1], [0.3, 0.4]], [0, 0]))
    0.5
    """

    top_k: Count = 5

    def list_values(self, lists: Lists, xp: ModuleType) -> ListValues:
        return ListValues(1.0 * (self.hits(lists) > 0), 1.0 * (lists.relevant > 0))


@register_metric("ndcg_at_k")
@dataclasses.dataclass(frozen=True)
class NDCGAtK(RankingMetric):
    """Discounted gain over that of the ideal order: ``sum_r g_r / log2(1 + r)`` over the ranks ``r <= top_k``.

    ``gain``: "exponential", ``g = 2^relevance - 1``, or "linear", ``g = relevance``; the same for labels 0 and 1.

    Reference: K. Järvelin, J. Kekäläinen, "Cumulated gain-based evaluation of IR techniques", 2002; C. Burges et
    al., "Learning to rank using gradient descent", 2005 (exponential gain).

    >>> metric = NDCGAtK(top_k=3)
    >>> round(metric.compute(metric.update(metric.init(), [[0.9, 0.1, 0.5]], [[0, 1, 3]])), 6)
    0.644287
    """

    top_k: Count = 10
    gain: Literal["exponential", "linear"] = "exponential"

    def list_values(self, lists: Lists, xp: ModuleType) -> ListValues:
        discount = self.within(lists) / xp.log2(1.0 + lists.rank)
        gained, best = (
            lists.per_list((xp.exp2(relevance) - 1 if self.gain == "exponential" else relevance) * discount)
            for relevance in (lists.relevance, lists.ideal)
        )
        some = best > 0
        return ListValues(gained / xp.where(some, best, 1), 1.0 * some)


@register_metric("mrr")
@dataclasses.dataclass(frozen=True)
class MRR(RankingMetric):
    """Mean reciprocal rank: ``1 / rank`` of the first relevant candidate; 0 if it is not among ``top_k``.

    >>> metric = MRR()
    >>> metric.compute(metric.update(metric.init(), [[0.9, 0.1, 0.5], [0.3, 0.4, 0.1]], [2, 1]))
    0.75
    """

    top_k: Count | None = None

    def list_values(self, lists: Lists, xp: ModuleType) -> ListValues:
        first = (lists.relevance > 0) & (lists.hits == 1) & self.within(lists)
        return ListValues(lists.per_list(first / lists.rank), 1.0 * (lists.relevant > 0))


@register_metric("map_at_k")
@dataclasses.dataclass(frozen=True)
class MAPAtK(RankingMetric):
    """Mean average precision: per list, ``sum over relevant ranks r <= top_k of hits(r) / r``, over the most possible.

    The most possible is ``min(top_k, relevant)`` terms of 1.

    >>> metric = MAPAtK(top_k=2)
    >>> metric.compute(metric.update(metric.init(), [[0.9, 0.1, 0.5]], [[0, 1, 1]]))
    0.25
    """

    top_k: Count = 10

    def list_values(self, lists: Lists, xp: ModuleType) -> ListValues:
        relevant = lists.relevant
        counted = (lists.relevance > 0) & self.within(lists)
        precision = lists.per_list(counted * lists.hits / lists.rank)
        return ListValues(precision / xp.clip(relevant, 1, self.top_k), 1.0 * (relevant > 0))


@register_metric("by_group")
@dataclasses.dataclass(frozen=True)
class ByGroup(GroupedMetric):
    """A ranking metric whose lists are the rows of each group: lists of any length, rows in any order and batch.

    Weights are per row; a list weighs what its heaviest row does, so give the rows of a list the same weight, or
    none. Groups without a relevant row are left out, and counted. Keeps every row on the host: feed it outside of
    ``jax.jit``.

    >>> metric = ByGroup(HitRateAtK(top_k=1))
    >>> state = metric.update(metric.init(), [0.9, 0.1, 0.3, 0.4], [1, 0, 1, 0], groups=["a", "a", "b", "b"])
    >>> metric.compute(state)
    0.5
    """

    metric: RankingMetric

    def __post_init__(self) -> None:
        if not isinstance(self.metric, RankingMetric):
            raise ValueError(f"ByGroup: metric must be a ranking metric, such as NDCGAtK(); got {self.metric!r}")

    @property
    def name(self) -> str:
        return f"ByGroup({self.metric.name})"

    _label_domain = NOT_NEGATIVE
    _left_out = "is without a relevant row"

    def _group_values(self, columns: Columns, groups: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        lists = rank_rows(columns, groups)
        value, share = self.metric.list_values(lists, np)
        if "weight" in columns:
            order = order_by(groups)
            share = share * np.maximum.reduceat(columns["weight"][order], starts(groups[order]))
        return np.where(share > 0, value, np.nan), share


def rank_rows(columns: Columns, groups: Codes) -> Lists:
    """List as runs of rows, by group, then descending score, then ascending relevance."""
    scores, relevance = float_codes(columns["prediction"]), columns["label"].astype(np.float64)
    relevance_codes = float_codes(columns["label"])
    order = order_by(groups, ~scores, relevance_codes)
    first = starts(groups[order])
    sizes = np.diff(first, append=order.size)
    ranked = relevance[order]
    running = np.cumsum(ranked > 0)
    before: NDArray[np.int64] = np.repeat(running[first] - (ranked[first] > 0), sizes)
    return Lists(
        relevance=ranked,
        ideal=relevance[order_by(groups, ~relevance_codes)],
        rank=np.arange(order.size) - np.repeat(first, sizes) + 1.0,
        hits=running - before,
        per_list=lambda x: np.add.reduceat(x.astype(np.float64), first),
    )
