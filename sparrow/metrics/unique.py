"""How many rows of codes are distinct: of a batch, or of all rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.fixed import BatchMean, SumState
from sparrow.metrics.inputs import ORDERED, CheckedRows, as_array, check_batch, clean
from sparrow.metrics.pointwise import element_weight
from sparrow.metrics.protocol import Result, register_metric
from sparrow.metrics.rows import Columns, RowMetric


@register_metric("unique_ratio")
@dataclasses.dataclass(frozen=True)
class UniqueRatio(BatchMean):
    """The mean over batches of (distinct rows / rows); batches without rows are skipped. Labels are not used.

    ``predictions`` are codes, ``(n,)`` or ``(n, length)``, such as semantic ids. A row of weight 2 counts as two
    rows that are equal; a row of weight 0 as none. Being a mean over batches, it depends on the batching.

    >>> metric = UniqueRatio()
    >>> metric.compute(metric.update(metric.init(), [[1, 2], [1, 2], [1, 3], [4, 2]]))
    0.75
    """

    needs_labels = False

    _prediction_domain = ORDERED

    def update(
        self, state: SumState, predictions: Any, labels: Any = None, weights: Any = None, groups: Any = None
    ) -> SumState:
        codes = as_array(self.name, "predictions", predictions)
        if isinstance(codes, np.ndarray) and codes.ndim and codes.dtype.kind in "iu" and codes.dtype.itemsize == 8:
            # Without 64-bit mode JAX would cut these codes; as two halves they stay distinct.
            codes = np.ascontiguousarray(codes).reshape(*codes.shape, 1).view(np.uint32)
        return super().update(state, codes, labels, weights, groups)

    def _read(self, predictions: Any, labels: Any, weights: Any) -> CheckedRows:
        codes = jnp.asarray(as_array(self.name, "predictions", predictions))
        check_batch(self.name, codes, None, weights)
        return clean(codes, None, weights, self._prediction_domain, self._label_domain)

    def _of_batch(self, batch: CheckedRows) -> tuple[Any, Any]:
        return distinct_rows(batch.predictions, batch.weights), element_weight(batch)[0]


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


@register_metric("collisions")
@dataclasses.dataclass(frozen=True)
class Collisions(RowMetric):
    """The share of rows whose codes another row has too, of all rows. Labels are not used; weights above 0 count as 1.

    ``predictions`` are codes, ``(n,)`` or ``(n, length)``, such as semantic ids: integers below ``2**(64 // length)``.
    The details hold the number of rows, of distinct codes and of the rows with the most frequent ones.

    >>> metric = Collisions()
    >>> state = metric.update(metric.init(), [[1, 2], [1, 2], [1, 3], [4, 2]])
    >>> metric.compute(state), metric.details(state)
    (0.5, {'rows': 4, 'distinct': 3, 'most': 2})
    """

    needs_labels = False

    def _read(self, predictions: Any, labels: Any, weights: Any, groups: Any) -> tuple[Columns, NDArray[Any]]:
        codes = np.asarray(predictions)
        codes = codes[:, None] if codes.ndim == 1 else codes
        bits = 64 // max(codes.shape[-1], 1)
        if (
            codes.ndim != 2
            or codes.dtype.kind not in "iu"
            or (codes.size and not 0 <= codes.min() <= codes.max() < 2**bits)
        ):
            raise ValueError(
                f"{self.name}.update: predictions must be codes, (n, length) integers from 0 to 2^{bits} - 1"
            )
        key = np.zeros(len(codes), np.uint64)
        for column in codes.T:
            key = (key << np.uint64(bits % 64)) | column.astype(np.uint64)
        if weights is not None:
            key = key[np.asarray(weights) > 0]
        return {"prediction": key, "label": np.zeros(len(key), np.bool_)}, np.zeros(3, np.int64)

    def _evaluate(self, columns: Columns) -> Result:
        keys = columns["prediction"]
        counts = np.unique(keys, return_counts=True)[1]
        details = {"rows": len(keys), "distinct": len(counts), "most": int(counts.max())}
        return Result(float(counts[counts > 1].sum() / len(keys)), None, details)
