"""XAUC: how often a regression puts two rows in the right order. Exact, in-batch, sampled, and grouped."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sparrow.fields import Bounds, Count
from sparrow.metrics import sums
from sparrow.metrics.fixed import BatchMean
from sparrow.metrics.grouped import GroupedMetric
from sparrow.metrics.inputs import CheckedRows, Domain, check_one_per_row
from sparrow.metrics.order import Codes, float_codes, order_by, running_before, starts
from sparrow.metrics.protocol import Metric, Result, register_metric
from sparrow.metrics.rows import Columns, RowMetric, length


class PairCounts(NamedTuple):
    """Per group: the weight of the pairs in the same order, of all pairs, and of the rows; and the rows' number."""

    concordant: NDArray[np.float64]
    pairs: NDArray[np.float64]
    weight: NDArray[np.float64]
    rows: NDArray[np.int64]


def count_pairs(columns: Columns, groups: Codes | None = None) -> PairCounts:
    """``concordant = sum w_i w_j [(y_i - y_j)(p_i - p_j) > 0]`` and ``pairs = sum w_i w_j``, over ``i < j``.

    Ties, in label or prediction, are not concordant. A pair weighs the product of its rows' weights.
    """
    predictions, labels = float_codes(columns["prediction"]), float_codes(columns["label"])
    size = predictions.size
    if groups is None:
        groups = np.zeros(size, np.uint32)
    number_to_row = order_by(groups, labels, ~predictions)
    predictions, groups = predictions[number_to_row], groups[number_to_row]
    weights = columns["weight"][number_to_row].astype(np.float64) if "weight" in columns else None
    # By prediction; later groups first, and of equal predictions the higher number first: neither is "met".
    by_prediction = size - 1 - order_by(~groups[::-1], predictions[::-1])
    met = lower_and_earlier(by_prediction, weights)
    first = starts(groups)
    rows = np.diff(first, append=size)
    if weights is None:
        pairs = rows * (rows - 1.0) / 2
        return PairCounts(np.add.reduceat(met, first).astype(np.float64), pairs, rows.astype(np.float64), rows)
    before = running_before(weights, first)  # the weight of the group's rows with a lower number
    concordant, pairs, weight = (
        np.add.reduceat(column, first) for column in (met * weights, before * weights, weights)
    )
    return PairCounts(concordant, pairs, weight, rows)


def lower_and_earlier(sequence: NDArray[np.int64], weights: NDArray[np.float64] | None) -> NDArray[Any]:
    """For each number ``k``: how many smaller numbers come before it in ``sequence``, a permutation.

    With ``weights`` (by number), the sum of their weights instead of their count.

    >>> lower_and_earlier(np.array([1, 0, 3, 2]), None)
    array([0, 0, 2, 2])
    """
    size = sequence.size
    numbers = sequence.astype(np.uint32)
    met = np.zeros(size, np.int64 if weights is None else np.float64)
    for bit in reversed(range(max(size - 1, 0).bit_length())):
        half, block = 1 << bit, 1 << (bit + 1)
        # Here the block that holds the numbers [b * block, (b + 1) * block) occupies just these places.
        is_upper = (numbers & np.uint32(half)) != 0
        upper, lower = numbers[is_upper], numbers[~is_upper]
        if weights is None:
            # Lower rows before a place: all rows before, less the upper ones; less those of earlier blocks.
            places = np.flatnonzero(is_upper)
            met[upper] += places - np.arange(upper.size) - (places >> (bit + 1)) * half
        else:
            of_lower = np.where(is_upper, 0.0, weights[numbers])
            met[upper] += running_before(of_lower, np.arange(0, size, block))[is_upper]
        full = size // block * half  # halves of complete blocks; a last, partial block follows
        whole = numbers[: 2 * full].reshape(-1, 2, half)
        whole[:, 0] = lower[:full].reshape(-1, half)
        whole[:, 1] = upper[:full].reshape(-1, half)
        numbers[2 * full :] = np.concatenate([lower[full:], upper[full:]])
    return met


_NO_PAIRS = "fewer than two rows of positive weight, so there is no pair"
_SAMPLES_AT_ONCE = 1 << 20


@register_metric("xauc")
@dataclasses.dataclass(frozen=True)
class XAUC(Metric[Any]):
    """The share of pairs of rows that predictions order as the labels do; ties count as wrong.

    ``sum w_i w_j [(y_i - y_j)(p_i - p_j) > 0] / sum w_i w_j`` over pairs ``i < j``. Three ways:

    * by default over all pairs of all rows, exactly, in O(n log n). Keeps every row on the host: feed it outside of
      ``jax.jit``;
    * ``in_batch``: the mean over batches of the same number within each batch, so it depends on the batching;
      batches without a pair are skipped. Fixed size, jittable; the work grows with the square of the batch;
    * ``sample_ratio`` (of all pairs) or ``max_pairs``: an estimate from as many pairs, drawn with replacement
      from ``seed``. For comparison with systems that sample: the exact way is quicker for all but tiny samples.
      Keeps every row.

    A weight is a pair's importance, not a count of copies: a copy would add a tied pair with its original.

    Reference: R. Zhan et al., "Deconfounding duration bias in watch-time prediction for video recommendation",
    2022.

    >>> metric = XAUC()
    >>> p, y = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [0.2, 0.3, 0.5, 0.4, 0.3, 0.2, 0.8, 0.9]
    >>> metric.compute(metric.update(metric.init(), p, y)) * 28
    19.0
    """

    in_batch: bool = False
    sample_ratio: Annotated[float, Bounds(above=0, at_most=1)] | None = None
    max_pairs: Count | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [self.in_batch, self.sample_ratio is not None, self.max_pairs is not None]
        if sum(given) > 1:
            raise ValueError("XAUC: in_batch, sample_ratio and max_pairs exclude each other; set one at most")

    @property
    def _way(self) -> Metric[Any]:
        if self.in_batch:
            return InBatchXAUC()
        return PairwiseXAUC(self.sample_ratio, self.max_pairs, self.seed)

    @property
    def jittable(self) -> bool:
        return self.in_batch

    def init(self) -> Any:
        return self._way.init()

    def update(self, state: Any, predictions: Any, labels: Any, weights: Any = None, groups: Any = None) -> Any:
        return self._way.update(state, predictions, labels, weights, groups)

    def merge(self, a: Any, b: Any) -> Any:
        return self._way.merge(a, b)

    def evaluate(self, state: Any) -> Result:
        return self._way.evaluate(state)

    def value(self, state: Any) -> jax.Array:
        return self._way.value(state)

    def has_faults(self, state: Any) -> Any:
        return self._way.has_faults(state)

    def to_arrays(self, state: Any) -> dict[str, NDArray[Any]]:
        return self._way.to_arrays(state)

    def from_arrays(self, arrays: dict[str, NDArray[Any]]) -> Any:
        return self._way.from_arrays(arrays)


@dataclasses.dataclass(frozen=True)
class InBatchXAUC(BatchMean):
    """All pairs of each batch; the mean over batches that have any."""

    name = "XAUC"

    def _matched(self, predictions: Any, labels: Any) -> tuple[Any, Any, Domain]:
        check_one_per_row(self.name, predictions)
        return super()._matched(predictions, labels)

    def _of_batch(self, batch: CheckedRows) -> tuple[Any, Any]:
        p, y = batch.predictions, batch.labels
        weights = jnp.ones_like(p) if batch.weights is None else batch.weights

        def above_others(row: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
            return row[2] * jnp.sum(jnp.where((row[0] > p) & (row[1] > y), weights, 0))

        # Blocks of rows against all rows: (256, n) at a time.
        concordant = sums.reduce(jax.lax.map(above_others, (p, y, weights), batch_size=256))[0]
        return concordant, sums.reduce(weights * (jnp.sum(weights) - weights))[0] / 2

    def _undefined(self, total: Mapping[str, Any]) -> str:
        return f"every batch has {_NO_PAIRS}"


@dataclasses.dataclass(frozen=True)
class PairwiseXAUC(RowMetric):
    """Pairs of all rows: every one, or a sample."""

    sample_ratio: float | None = None
    max_pairs: int | None = None
    seed: int = 0

    name = "XAUC"

    def _evaluate(self, columns: Columns) -> Result:
        rows = length(columns)
        if rows < 2:
            return Result(float("nan"), f"{self.name}: {_NO_PAIRS}", {"pairs": 0.0})
        if self.sample_ratio is None and self.max_pairs is None:
            counts = count_pairs(columns)
            concordant, pairs = float(counts.concordant[0]), float(counts.pairs[0])
        else:
            every = rows * (rows - 1) // 2
            draws = self.max_pairs if self.sample_ratio is None else max(1, int(every * self.sample_ratio))
            concordant, pairs = sample_pairs(columns, draws or 1, self.seed)
        return Result(concordant / pairs, None, {"pairs": pairs})


def sample_pairs(columns: Columns, draws: int, seed: int) -> tuple[float, float]:
    """Return the weight of concordant pairs, and of all, among ``draws`` pairs drawn with replacement."""
    # In an order of their own, so that the sample does not depend on the batches the rows came in.
    order = order_by(*(float_codes(columns[name]) for name in ("label", "prediction", "weight") if name in columns))
    labels, predictions = columns["label"][order], columns["prediction"][order]
    weights = columns["weight"][order].astype(np.float64) if "weight" in columns else None
    generator = np.random.default_rng(seed)
    concordant = total = 0.0
    for done in range(0, draws, _SAMPLES_AT_ONCE):
        count = min(_SAMPLES_AT_ONCE, draws - done)
        i = generator.integers(0, labels.size, count, dtype=np.int64)
        j = generator.integers(0, labels.size - 1, count, dtype=np.int64)
        j += j >= i  # any row but i, all alike
        agree = (labels[i] > labels[j]) & (predictions[i] > predictions[j])
        agree |= (labels[i] < labels[j]) & (predictions[i] < predictions[j])
        weight = np.ones(count) if weights is None else weights[i] * weights[j]
        concordant += float(weight[agree].sum())
        total += float(weight.sum())
    return concordant, total


@register_metric("grouped_xauc")
@dataclasses.dataclass(frozen=True)
class GroupedXAUC(GroupedMetric):
    """The mean over groups of the exact XAUC within each: all pairs, no sampling.

    Groups of one row have no pair: they are left out, and counted in `details`. ``average`` weighs a group by the
    weight of its rows ("impressions") or by 1 ("uniform"). Keeps every row on the host: feed it outside of
    ``jax.jit``. O(n log n), whatever the sizes of the groups.

    >>> metric = GroupedXAUC()
    >>> p, y = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8], [0.2, 0.3, 0.5, 0.4, 0.3, 0.2, 0.8, 0.9]
    >>> metric.compute(metric.update(metric.init(), p, y, groups=[1, 2, 2, 1, 3, 3, 4, 4]))
    0.75
    """

    average: Literal["impressions", "uniform"] = "impressions"

    _left_out = "has one row only"

    def _group_values(self, columns: Columns, groups: Codes) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        counts = count_pairs(columns, groups)
        has_pairs = counts.rows > 1
        values = np.full(counts.pairs.shape, np.nan)
        np.divide(counts.concordant, counts.pairs, out=values, where=has_pairs)
        return values, counts.weight if self.average == "impressions" else np.ones_like(values)
