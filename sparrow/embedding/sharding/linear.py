"""Linear operations on a sum over devices that is kept as one part for each device: (devices, ...)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp

Given = tuple[Any, Any]
"""An array, and its parts: one of both is None."""


def _reshape(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    parts = given[0][1]
    return parts.reshape(len(parts), *params["new_sizes"]) if params["dimensions"] is None else None


def _squeeze(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    return jnp.squeeze(given[0][1], axis=tuple(dim + 1 for dim in params["dimensions"]))


def _transpose(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    return jnp.transpose(given[0][1], (0, *(axis + 1 for axis in params["permutation"])))


def _sum(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    return given[0][1].sum(axis=tuple(axis + 1 for axis in params["axes"]))


def _convert(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    dtype = params["new_dtype"]
    return given[0][1].astype(dtype) if jnp.issubdtype(dtype, jnp.floating) else None


def _negate(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    return -given[0][1]


def _add(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    (_, left), (_, right) = given
    return None if left is None or right is None else left + right


def _multiply(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    (one, left), (other, right) = given
    if left is not None and right is None and jnp.ndim(other) == 0:
        return left * other
    return right * one if right is not None and left is None and jnp.ndim(one) == 0 else None


def _divide(params: Mapping[str, Any], given: Sequence[Given]) -> Any:
    (_, left), (other, right) = given
    return left / other if left is not None and right is None and jnp.ndim(other) == 0 else None


LINEAR: Mapping[str, Callable[[Mapping[str, Any], Sequence[Given]], Any]] = {
    "add": _add,
    "add_any": _add,
    "convert_element_type": _convert,
    "copy": lambda params, given: given[0][1],
    "div": _divide,
    "mul": _multiply,
    "neg": _negate,
    "reduce_sum": _sum,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "transpose": _transpose,
}
"""By the name of the operation: its result's parts; None: it is not linear in what it is given."""
