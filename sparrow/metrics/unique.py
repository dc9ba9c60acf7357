"""How many of the rows of a batch are distinct. Fixed size, jittable."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.metrics import sums
from sparrow.metrics.averages import element_weight
from sparrow.metrics.fixed import FixedSizeMetric, SumState, ratio
from sparrow.metrics.inputs import ORDERED, Batch, Domain, as_array, check_batch, clean
from sparrow.metrics.records import register_metric
from sparrow.metrics.sums import Sum


@register_metric("unique_ratio")
@dataclasses.dataclass(frozen=True)
class UniqueRatio(FixedSizeMetric):
    """The mean over batches of (distinct rows / rows); batches without rows are skipped. Labels are not used.

    ``predictions`` are codes, ``(n,)`` or ``(n, length)``, such as semantic ids. A row of weight 2 counts as two
    rows that are equal; a row of weight 0 as none. Being a mean over batches, it depends on the batching.

    >>> metric = UniqueRatio()
    >>> metric.compute(metric.update(metric.init(), [[1, 2], [1, 2], [1, 3], [4, 2]]))
    0.75
    """

    @property
    def _prediction_domain(self) -> Domain:
        return ORDERED

    def update(
        self, state: SumState, predictions: Any, labels: Any = None, weights: Any = None, groups: Any = None
    ) -> SumState:
        """Add one batch; runs inside ``jax.jit``."""
        codes = as_array(self.name, "predictions", predictions)
        if isinstance(codes, np.ndarray) and codes.ndim and codes.dtype.kind in "iu" and codes.dtype.itemsize == 8:
            # Without 64-bit mode JAX would cut these codes; as two halves they stay distinct.
            codes = np.ascontiguousarray(codes).reshape(*codes.shape, 1).view(np.uint32)
        return super().update(state, codes, labels, weights, groups)

    def _read(self, predictions: Any, labels: Any, weights: Any) -> Batch:
        codes = jnp.asarray(as_array(self.name, "predictions", predictions))
        check_batch(self.name, codes, None, weights)
        return clean(codes, None, weights, self._prediction_domain, self._label_domain)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {"ratios": (), "batches": ()}

    def _sums(self, batch: Batch) -> dict[str, Sum]:
        rows = element_weight(batch)[0]
        distinct = distinct_rows(batch.predictions, batch.weights)
        some = rows > 0
        share = jnp.where(some, distinct / jnp.where(some, rows, 1), 0)
        return {"ratios": sums.split(share), "batches": sums.split(some.astype(jnp.float32))}

    def _value(self, total: Mapping[str, Any], xp: ModuleType) -> Any:
        return ratio(xp, total["ratios"], total["batches"])


def distinct_rows(codes: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Return the number of distinct rows of ``codes`` (n, ...) whose weight is not 0: sorted, then counted."""
    rows = codes.shape[0]
    if rows == 0:
        return jnp.zeros((), jnp.float32)
    absent = jnp.zeros((rows,), bool) if weights is None else weights == 0
    columns = codes.reshape(rows, -1).T
    absent, *ordered = jax.lax.sort((absent, *columns), num_keys=1 + len(columns))
    changed = jnp.zeros((rows - 1,), bool)
    for column in ordered:
        changed |= column[1:] != column[:-1]
    first_of_kind = jnp.concatenate([jnp.ones((1,), bool), changed])
    return jnp.sum(first_of_kind & ~absent).astype(jnp.float32)
