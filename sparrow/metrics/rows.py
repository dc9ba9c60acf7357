"""The base of exact metrics: the state keeps the rows, on the host, and `evaluate` sorts them once."""

from __future__ import annotations

import abc
import functools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sparrow.metrics.inputs import (
    ORDERED,
    Domain,
    as_floats,
    check_batch,
    check_equal_shapes,
    fault_reason,
    is_traced,
    judge,
    refuse_groups,
)
from sparrow.metrics.keys import encode
from sparrow.metrics.protocol import Metric, Result

Columns = dict[str, NDArray[Any]]

# Columns that a chunk may leave out, and what they then hold.
_DEFAULTS = {"weight": (1, np.float32), "key_high": (0, np.uint64)}


class RowState(NamedTuple):
    """Rows in chunks of columns. Chunks are never changed; their sizes grow geometrically."""

    chunks: tuple[Columns, ...]
    faults: NDArray[np.int64]  # (3,)


class RowMetric(Metric[RowState]):
    """A metric that needs all rows at once. Subclasses define the number of a table of columns.

    Columns: ``prediction`` and ``label``; ``weight`` where weights were given; ``key_low`` (and ``key_high``) where
    rows are grouped. Rows of weight 0 are not kept.
    """

    @property
    def _prediction_domain(self) -> Domain:
        return ORDERED

    @property
    @abc.abstractmethod
    def _label_domain(self) -> Domain: ...

    @abc.abstractmethod
    def _evaluate(self, columns: Columns) -> Result:
        """Return the result of one table of rows; it may be empty."""

    @property
    def jittable(self) -> bool:
        """False: the state grows with the rows."""
        return False

    def init(self) -> RowState:
        """No rows."""
        return RowState((), np.zeros(3, np.int64))

    def update(
        self, state: RowState, predictions: Any, labels: Any, weights: Any = None, groups: Any = None
    ) -> RowState:
        """Append the rows of one batch, on the host."""
        # A list of keys may be long: only arrays are looked at.
        given = [value for value in (predictions, labels, weights, groups) if not isinstance(value, list | tuple)]
        if is_traced(state, given):
            raise TypeError(
                f"{self.name}.update keeps rows, so it cannot run inside jax.jit: return the predictions, labels, "
                "weights and groups from the jitted step and call update outside of it"
            )
        chunk, faults = self._read(predictions, labels, weights, groups)
        return RowState(append(state.chunks, chunk), state.faults + faults)

    def merge(self, a: RowState, b: RowState) -> RowState:
        """Return the rows of both."""
        return RowState(functools.reduce(append, b.chunks, a.chunks), a.faults + b.faults)

    def evaluate(self, state: RowState) -> Result:
        """Return the number in float64, with its reason and details."""
        if state.faults.any():
            return Result(float("nan"), self.fault_reason(state.faults), {})
        return self._evaluate(concatenate(state.chunks))

    def to_arrays(self, state: RowState) -> dict[str, NDArray[Any]]:
        """One table of columns, and the faults."""
        columns = concatenate(state.chunks)
        return {"faults": state.faults, **{f"rows/{name}": column for name, column in columns.items()}}

    def from_arrays(self, arrays: dict[str, NDArray[Any]]) -> RowState:
        """Return the state of arrays from `to_arrays`."""
        rows = {name.removeprefix("rows/"): array for name, array in arrays.items() if name != "faults"}
        return RowState(append((), rows), arrays["faults"])

    def fault_reason(self, faults: NDArray[Any]) -> str:
        """Return the sentence for rows that cannot be judged."""
        return fault_reason(self.name, list(faults), self._prediction_domain, self._label_domain)

    def has_faults(self, state: RowState) -> bool:
        """Whether the state has seen rows that cannot be judged."""
        return bool(state.faults.any())

    def _read(self, predictions: Any, labels: Any, weights: Any, groups: Any) -> tuple[Columns, NDArray[Any]]:
        predictions = as_floats(np, self.name, "predictions", predictions)
        labels = as_floats(np, self.name, "labels", labels)
        weights = None if weights is None else as_floats(np, self.name, "weights", weights)
        check_batch(self.name, predictions, labels, weights)
        check_equal_shapes(self.name, predictions, labels)
        if predictions.ndim != 1:
            raise ValueError(
                f"{self.name}.update: predictions have shape {predictions.shape}; give one number per row, (n,)"
            )
        kept, faults = judge(np, predictions, labels, weights, self._prediction_domain, self._label_domain)
        columns = {"prediction": predictions, "label": self._stored_labels(labels)}
        if weights is not None:
            columns["weight"] = weights
        if self.needs_groups:
            if groups is None:
                raise ValueError(f"{self.name}.update: groups are missing; give one key a row")
            low, high = encode(self.name, groups, predictions.shape[0])
            columns["key_low"] = low
            if high is not None:
                columns["key_high"] = high
        else:
            refuse_groups(self.name, groups)
        # Copies: the caller may reuse the arrays.
        rows = slice(None) if kept.all() else kept
        return {name: column[rows].copy() for name, column in columns.items()}, faults

    def _stored_labels(self, labels: NDArray[Any]) -> NDArray[Any]:
        return labels


def append(chunks: tuple[Columns, ...], chunk: Columns) -> tuple[Columns, ...]:
    """``chunks`` and one more. Neighbors of like size are joined, so there are few and a row is copied rarely."""
    if not length(chunk):
        return chunks
    while chunks and length(chunks[-1]) < 2 * length(chunk):
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
    return {name: np.concatenate([_column(chunk, name) for chunk in chunks]) for name in names}


def _column(chunk: Columns, name: str) -> NDArray[Any]:
    if name in chunk:
        return chunk[name]
    default, dtype = _DEFAULTS[name]
    return np.full(length(chunk), default, dtype)
