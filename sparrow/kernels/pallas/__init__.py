"""The GPU backend: fused kernels in Pallas that trace the rule itself. On CPUs they are interpreted, for tests."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sparrow.kernels.platform import platform
from sparrow.kernels.types import Lookups, RowGradients, RowStep, StepScalars

name = "pallas"

LONGEST_ROW = 2048
OLDEST_GPU = 8.0  # compute capability of Ampere: the oldest that Pallas' Triton compiler serves


def unavailable() -> str | None:
    """Why this backend cannot run here; None: it can."""
    if platform() == "cpu":
        return None  # interpreted: slow, and right
    capability = getattr(jax.devices()[0], "compute_capability", None)
    try:
        is_new = platform() == "gpu" and float(str(capability)) >= OLDEST_GPU
    except ValueError:
        is_new = False
    if is_new:
        return None
    kind = jax.devices()[0].device_kind
    return f"it needs an NVIDIA GPU of compute capability {OLDEST_GPU} or newer, and this is '{kind}'"


def unsupported(step: RowStep) -> str | None:
    """Why this backend cannot run ``step``; None: it can."""
    from sparrow.kernels.pallas.padded import first_refused

    if step.dim > LONGEST_ROW:
        return f"rows of {step.dim} elements are longer than {LONGEST_ROW}"
    return first_refused(step)


def lookup(table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32) -> jax.Array:
    """(num_bags, dim) ``dtype``: each bag's rows, times their gains, summed in float32."""
    from sparrow.kernels.pallas import pooling, tuning

    return pooling.lookup(table, lookups, tuning.for_lookup(table.shape[1])).astype(dtype)


def lookup_and_sort(table: jax.Array, lookups: Lookups, dtype: Any = jnp.float32) -> tuple[jax.Array, Lookups]:
    """`lookup`; the update sorts for itself."""
    return lookup(table, lookups, dtype), lookups


def update(
    step: RowStep,
    table: jax.Array,
    slots: tuple[jax.Array, ...],
    grads: RowGradients,
    scalars: StepScalars,
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    """Applies ``step`` once to every row that ``grads`` touches. With table and slots donated, in place."""
    from sparrow.kernels.pallas import fused, tuning

    return fused.update(step, table, slots, grads, scalars, tuning.for_update(step))
