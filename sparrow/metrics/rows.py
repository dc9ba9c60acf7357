"""The base of exact metrics: the state keeps the rows, on the host, and `evaluate` sorts them once."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.inputs import (
    NO_ROWS,
    ORDERED,
    as_floats,
    check_batch,
    check_equal_shapes,
    check_one_per_row,
    fault_reason,
    is_traced,
    judge,
    refuse_groups,
)
from sparrow.metrics.keys import encode
from sparrow.metrics.protocol import Metric, Result

Columns = dict[str, NDArray[Any]]

# Columns that a chunk may leave out, and what they then hold.
_DEFAULTS: dict[str, Any] = {"weight": (1, np.float32), "key_high": (0, np.uint64)}


LARGE = 2**17
"""Rows of a chunk that stays as it is."""


class RowState(NamedTuple):
    """Rows in chunks of columns. Chunks are never changed; their sizes grow geometrically, up to `LARGE`."""

    chunks: tuple[Columns, ...]
    faults: NDArray[np.int64]  # (3,)


class RowMetric(Metric[RowState]):
    """A metric that needs all rows at once. Subclasses define the number of a table of columns.

    Columns: ``prediction`` and ``label``; ``weight`` where weights were given; ``key_low`` (and ``key_high``) where
    rows are grouped. Rows of weight 0 are not kept.
    """

    _prediction_domain = ORDERED
    _label_domain = ORDERED
    _label_dtype: ClassVar[np.dtype[Any] | None] = None  # as labels are kept; None: as they are given

    def _evaluate(self, columns: Columns) -> Result:
        """Return the result of one table of rows, at least one."""
        raise NotImplementedError(f"{self.name} must define _evaluate(columns), or evaluate(state)")

    jittable = False

    def init(self) -> RowState:
        return RowState((), np.zeros(3, np.int64))

    def update(
        self, state: RowState, predictions: Any, labels: Any = None, weights: Any = None, groups: Any = None
    ) -> RowState:
        # A list of keys may be long: only arrays are looked at.
        if is_traced(state, [x for x in (predictions, labels, weights, groups) if not isinstance(x, list | tuple)]):
            raise TypeError(
                f"{self.name}.update keeps rows, so it cannot run inside jax.jit: return the predictions, labels, "
                "weights and groups from the jitted step and call update outside of it"
            )
        chunk, faults = self._read(predictions, labels, weights, groups)
        return RowState(append(state.chunks, chunk), state.faults + faults)

    def merge(self, a: RowState, b: RowState) -> RowState:
        return RowState(functools.reduce(append, b.chunks, a.chunks), a.faults + b.faults)

    def evaluate(self, state: RowState) -> Result:
        if state.faults.any():
            return Result(float("nan"), self.fault_reason(state.faults), {})
        columns = concatenate(state.chunks)
        return self._evaluate(columns) if length(columns) else Result(float("nan"), f"{self.name}: {NO_ROWS}", {})

    def to_arrays(self, state: RowState) -> dict[str, NDArray[Any]]:
        columns = concatenate(state.chunks)
        return {"faults": state.faults, **{f"rows/{name}": column for name, column in columns.items()}}

    def from_arrays(self, arrays: dict[str, NDArray[Any]]) -> RowState:
        rows = {name.removeprefix("rows/"): array for name, array in arrays.items() if name != "faults"}
        return RowState(append((), rows), arrays["faults"])

    def fault_reason(self, faults: NDArray[Any]) -> str:
        return fault_reason(self.name, list(faults), self._prediction_domain, self._label_domain)

    def has_faults(self, state: RowState) -> bool:
        return bool(state.faults.any())

    def _read(self, predictions: Any, labels: Any, weights: Any, groups: Any) -> tuple[Columns, NDArray[Any]]:
        predictions = as_floats(np, self.name, "predictions", predictions)
        labels = as_floats(np, self.name, "labels", labels)
        weights = None if weights is None else as_floats(np, self.name, "weights", weights)
        check_batch(self.name, predictions, labels, weights)
        check_equal_shapes(self.name, predictions, labels)
        check_one_per_row(self.name, predictions)
        kept, faults = judge(np, predictions, labels, weights, self._prediction_domain, self._label_domain)
        columns = {"prediction": predictions, "label": labels.astype(self._label_dtype or labels.dtype, copy=False)}
        if weights is not None:
            columns["weight"] = weights
        if self.needs_groups:
            if groups is None:
                raise ValueError(f"{self.name}.update: groups are missing; give one key per row")
            columns["key_low"], high = encode(self.name, groups, predictions.shape[0])
            if high is not None:
                columns["key_high"] = high
        else:
            refuse_groups(self.name, groups)
        # Copies: the caller may reuse the arrays.
        rows = slice(None) if kept.all() else kept
        return {name: column[rows].copy() for name, column in columns.items()}, faults


def append(chunks: tuple[Columns, ...], chunk: Columns) -> tuple[Columns, ...]:
    """``chunks`` and one more. Small neighbors of like size are joined, so there are few and a row is copied rarely."""
    if not length(chunk):
        return chunks
    while chunks and length(chunks[-1]) < min(2 * length(chunk), LARGE):
        chunk = concatenate((chunks[-1], chunk))
        chunks = chunks[:-1]
    return (*chunks, chunk)


def length(columns: Columns) -> int:
    """Return the number of rows."""
    return int(columns["prediction"].size)


def concatenate(chunks: tuple[Columns, ...]) -> Columns:
    """One table of all rows; columns that only some chunks have are filled with their defaults."""
    if len(chunks) == 1:
        return chunks[0]
    if not chunks:
        empty: Columns = {"prediction": np.zeros(0, np.float32), "label": np.zeros(0, np.float32)}
        return {**empty, "key_low": np.zeros(0, np.uint64)}
    names = dict.fromkeys(name for chunk in chunks for name in chunk)
    return {
        name: np.concatenate([c[name] if name in c else np.full(length(c), *_DEFAULTS[name]) for c in chunks])
        for name in names
    }
