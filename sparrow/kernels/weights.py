"""The derivative of a lookup with respect to its gains: pooled rows are linear in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels.types import Lookups

WeightedLookup = Callable[[jax.Array, Lookups, Any], tuple[jax.Array, jax.Array | None]]
"""(table, lookups, dtype) to the pooled rows, and the order of the entries or None."""


def differentiable(
    call: WeightedLookup, table: jax.Array, lookups: Lookups, dtype: Any
) -> tuple[jax.Array, jax.Array | None]:
    """Return ``call(table, lookups, dtype)``, of a foreign function, with its derivative in ``lookups.gains``.

    The gradient of a gain is the dot product of its row and the gradient of its bag; `gain_grads` computes it.
    """
    if lookups.gains is None:
        return call(table, lookups, dtype)

    @jax.custom_jvp
    def run(table: jax.Array, gains: jax.Array, rest: Lookups) -> tuple[jax.Array, jax.Array | None]:
        return call(table, dataclasses.replace(rest, gains=gains), dtype)

    def derivative(primals: Any, tangents: Any) -> Any:
        table, gains, rest = primals
        rows, order = run(table, gains, rest)
        if not isinstance(tangents[0], jax.custom_derivatives.SymbolicZero):
            raise TypeError("a lookup can be differentiated with respect to gains, not to the table")
        none = None if order is None else np.zeros(order.shape, jax.dtypes.float0)
        if isinstance(tangents[1], jax.custom_derivatives.SymbolicZero):
            return (rows, order), (jnp.zeros_like(rows), none)
        moved = jax.custom_derivatives.linear_call(
            lambda given, gains: call(given[0], dataclasses.replace(given[1], gains=gains), dtype)[0],
            lambda given, grads: gain_grads(given[0], given[1], grads),
            (table, rest),
            tangents[1],
        )
        return (rows, order), (moved, none)

    run.defjvp(derivative, symbolic_zeros=True)
    return run(table, lookups.gains, dataclasses.replace(lookups, gains=None))


def gain_grads(table: jax.Array, lookups: Lookups, bag_grads: jax.Array) -> jax.Array:
    """(N,) float32: the dot product of each entry's row and its bag's gradient; 0 for an entry without a row."""
    ids = jnp.where((lookups.ids >= 0) & (lookups.ids < table.shape[0]), lookups.ids, table.shape[0])
    rows = table.at[ids].get(mode="fill", fill_value=0).astype(jnp.float32)  # (N, dim)
    grads = bag_grads.astype(jnp.float32)
    if lookups.bags is not None:
        grads = grads.at[lookups.bags].get(mode="fill", fill_value=0)
    return jnp.sum(rows * grads, axis=1)
