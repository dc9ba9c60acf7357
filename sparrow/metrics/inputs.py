"""Reading a batch: one set of checks for metrics in a jitted step (``xp = jax.numpy``) and on the host (NumPy).

Shapes are known while tracing, so a wrong shape is an error there and then. Values are not: rows that cannot be
judged are counted (`CheckedRows.faults`), and a result that has any is NaN with a reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FAULT_KINDS = ("predictions", "labels", "weights")
NO_ROWS = "no rows, or all their weights are 0"


@dataclasses.dataclass(frozen=True)
class Domain:
    """A set of numbers: ``text`` completes the sentence "3 predictions are not ..."."""

    text: str
    contains: Callable[[ModuleType, Any], Any]  # (xp, values) -> mask


FINITE = Domain("finite numbers", lambda xp, x: xp.isfinite(x))
ORDERED = Domain("numbers (they are NaN)", lambda xp, x: ~xp.isnan(x))
UNIT = Domain("in [0, 1]", lambda xp, x: (x >= 0) & (x <= 1))
PROBABILITY = dataclasses.replace(UNIT, text="in [0, 1] (for logits, set from_logits=True)")
BINARY = Domain("0 or 1", lambda xp, x: (x == 0) | (x == 1))
NOT_NEGATIVE = Domain("finite numbers from 0 up", lambda xp, x: xp.isfinite(x) & (x >= 0))


def class_index(num_classes: int) -> Domain:
    """Return the domain of a label that names one of ``num_classes`` columns."""
    return Domain(
        f"integers from 0 to {num_classes - 1}", lambda xp, x: (x >= 0) & (x < num_classes) & (x == xp.floor(x))
    )


class CheckedRows(NamedTuple):
    """Rows that are fit for arithmetic: those with weight 0 or a fault hold neutral numbers."""

    predictions: Any  # (n, ...)
    labels: Any  # (n, ...), or None
    weights: Any  # (n,), or None for all ones
    faults: Any  # (3,) integers: rows at fault, by FAULT_KINDS


def as_array(name: str, what: str, values: Any) -> Any:
    """``values`` as an array of numbers: one of JAX as it is, anything else by way of NumPy."""
    if values is None:
        raise TypeError(f"{name}.update: {what} are missing")
    array = values if isinstance(values, jax.Array) else np.asarray(values)
    if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name}.update: {what} must be numbers, got an array of {array.dtype}")
    return array


def as_arrays(name: str, predictions: Any, labels: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return the arguments of an update as arrays, None where left out, for a compiled function."""
    given = (("predictions", predictions), ("labels", labels), ("weights", weights))
    predictions, labels, weights = (None if v is None else as_array(name, what, v) for what, v in given)
    return predictions, labels, weights


def as_floats(xp: ModuleType, name: str, what: str, values: Any) -> Any:
    """``values`` as floats: float64 stays where it exists, narrower floats and integers are widened."""
    array = xp.asarray(as_array(name, what, values))
    if jnp.issubdtype(array.dtype, jnp.floating):
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)
    exact_in_float32 = array.dtype.itemsize < 4
    return array.astype(np.float32 if exact_in_float32 or xp is jnp else np.float64)


def positive_probability(name: str, predictions: Any, from_logits: bool) -> Any:
    """Return the probability (or logit) of the positive class: (n,), or the second of two columns (n, 2).

    Two columns of logits are one logit, their difference: softmax over two is the sigmoid of it.
    """
    if predictions.ndim == 2 and predictions.shape[1] == 2:
        return predictions[:, 1] - predictions[:, 0] if from_logits else predictions[:, 1]
    if predictions.ndim != 1:
        raise ValueError(
            f"{name}.update: predictions have shape {predictions.shape}; give (n,), or (n, 2) for two classes"
        )
    return predictions


def check_batch(name: str, predictions: Any, labels: Any, weights: Any) -> None:
    """Raise ValueError unless all arguments have the same number of rows, and weights one number per row."""
    if predictions.ndim == 0:
        raise ValueError(f"{name}.update: predictions are one number; give an array whose first axis is the batch")
    rows = predictions.shape[0]
    if labels is not None and (labels.ndim == 0 or labels.shape[0] != rows):
        raise ValueError(
            f"{name}.update: predictions have {rows} rows and labels have shape {labels.shape}; "
            "their first axes must be equal"
        )
    if weights is not None and weights.shape != (rows,):
        raise ValueError(f"{name}.update: weights have shape {weights.shape}; they must be ({rows},), one per row")


def check_equal_shapes(name: str, predictions: Any, labels: Any) -> None:
    """Raise ValueError for unlike shapes: to broadcast (n,) with (n, 1) would compare all pairs of rows in silence."""
    if predictions.shape != labels.shape:
        raise ValueError(
            f"{name}.update: predictions have shape {predictions.shape} and labels {labels.shape}; they must be equal"
        )


def check_one_per_row(name: str, predictions: Any) -> None:
    """Raise ValueError unless predictions are one number per row."""
    if predictions.ndim != 1:
        raise ValueError(f"{name}.update: predictions have shape {predictions.shape}; give one number per row, (n,)")


def label_domain(name: str, predictions: Any, labels: Any, single: Domain) -> Domain:
    """Return the labels allowed: ``single`` for predictions (n,), the index of a column for (n, classes)."""
    if predictions.ndim == 2 and predictions.shape[1] > 1 and labels.shape == predictions.shape[:1]:
        return class_index(predictions.shape[1])
    if predictions.ndim == 1 and labels.shape == predictions.shape:
        return single
    raise ValueError(
        f"{name}.update: predictions have shape {predictions.shape} and labels {labels.shape}; "
        "give (n,) and (n,), or (n, classes) and the class (n,)"
    )


def judge(
    xp: ModuleType, predictions: Any, labels: Any, weights: Any, prediction_domain: Domain, label_domain: Domain
) -> tuple[Any, Any]:
    """Which rows count (n,), and how many are at fault by FAULT_KINDS (3,). Rows of weight 0 are neither."""
    everything = xp.ones((predictions.shape[0],), bool)
    used = everything if weights is None else weights != 0
    weight_ok = everything if weights is None else NOT_NEGATIVE.contains(xp, weights)
    prediction_ok = _whole_row(prediction_domain.contains(xp, predictions))
    label_ok = everything if labels is None else _whole_row(label_domain.contains(xp, labels))
    bad = xp.stack([used & ~prediction_ok, used & ~label_ok, ~weight_ok])
    return used & prediction_ok & label_ok & weight_ok, bad.sum(axis=1, dtype=np.int32)


def clean(
    predictions: Any,
    labels: Any,
    weights: Any,
    prediction_domain: Domain,
    label_domain: Domain,
    neutral_prediction: float = 0.0,
) -> CheckedRows:
    """Return a batch of static shape, fit for arithmetic: rows that do not count hold neutral numbers."""
    kept, faults = judge(jnp, predictions, labels, weights, prediction_domain, label_domain)
    return CheckedRows(
        predictions=_keep(kept, predictions, neutral_prediction),
        labels=None if labels is None else _keep(kept, labels, 0),
        weights=None if weights is None else _keep(kept, weights, 0),
        faults=faults,
    )


def missing_class(positive: float, negative: float) -> str:
    """Return the reason for an area without positive or without negative labels, for the end of a sentence."""
    return f"no {'negative' if positive else 'positive'} labels" if positive or negative else NO_ROWS


def fault_reason(name: str, faults: Sequence[float], prediction_domain: Domain, label_domain: Domain) -> str:
    """Return the sentence for a state that has seen rows at fault."""
    domains = (prediction_domain, label_domain, NOT_NEGATIVE)
    parts = [
        f"{int(count)} {kind} are not {domain.text}"
        for count, kind, domain in zip(faults, FAULT_KINDS, domains, strict=True)
        if count
    ]
    return f"{name}: {'; '.join(parts)}. Give weight 0 to rows that should not count."


def refuse_groups(name: str, groups: Any) -> None:
    """Raise for a metric over all rows that is given ``groups``."""
    if groups is not None:
        raise ValueError(f"{name}.update: groups were given, but {name} does not group rows; leave them out")


def is_traced(*states: Any) -> bool:
    """Whether any array in ``states`` belongs to a ``jax.jit`` that is being traced."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(states))


def _whole_row(mask: Any) -> Any:
    return mask.all(axis=tuple(range(1, mask.ndim))) if mask.ndim > 1 else mask


def _keep(kept: jax.Array, values: jax.Array, neutral: float) -> jax.Array:
    neutral_value = jnp.asarray(neutral, values.dtype)
    return jnp.where(kept.reshape(kept.shape + (1,) * (values.ndim - 1)), values, neutral_value)
