"""Checks of the input of a loss: shapes, dtypes and hyper-parameters, by name.

Only what is known while tracing is checked: shapes, dtypes and plain numbers, never the values of an array.
"""

from __future__ import annotations

from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from sparrow.fields import Bounds

Scalar = float | jax.Array
"""A hyper-parameter: a plain number, or a JAX scalar (traced, learned)."""
PositiveScalar = Annotated[Scalar, Bounds(above=0)]
ShareScalar = Annotated[Scalar, Bounds(at_least=0, below=1)]
"""At least 0 and below 1."""


def floating(loss: str, name: str, array: ArrayLike) -> jax.Array:
    """``array`` in the precision that losses compute in: float32, or float64 where the user gave that."""
    array = jnp.asarray(array)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{loss}: {name} must be floating-point, got {array.dtype}; convert with astype")
    return array.astype(jnp.float32) if array.dtype.itemsize < 4 else array


def integer(loss: str, name: str, array: ArrayLike) -> jax.Array:
    """``array`` as integers; booleans count as 0 and 1."""
    array = jnp.asarray(array)
    if array.dtype == jnp.bool_:
        return array.astype(jnp.int32)
    if not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{loss}: {name} must be integers, got {array.dtype}; convert with astype")
    return array


def shape(loss: str, name: str, array: jax.Array, expected: tuple[int, ...], why: str) -> None:
    """Refuses an array that does not have the ``expected`` shape; nothing is broadcast by accident."""
    if array.shape != expected:
        raise ValueError(f"{loss}: {name} must have shape {expected}, {why}, got {array.shape}")


def rank(loss: str, name: str, array: jax.Array, axes: str) -> None:
    """Refuses an array that does not have the named ``axes``, such as "(batch, dim)"."""
    if array.ndim != axes.count(",") + 1 - axes.endswith(",)"):
        raise ValueError(f"{loss}: {name} must have shape {axes}, got {array.shape}")


def keys(loss: str, name: str, *arrays: ArrayLike) -> list[jax.Array]:
    """Integer ids that are equal where the given ids are equal.

    Ids that are still on the host are numbered there: JAX would cut 64-bit ids to 32 bits, and has no strings.
    """
    if any(isinstance(array, jax.Array) for array in arrays):
        return [integer(loss, name, array) for array in arrays]
    on_host = [np.asarray(array) for array in arrays]
    for array in on_host:
        if array.dtype.kind not in "biuSU":
            raise TypeError(f"{loss}: {name} must be integers or strings, got {array.dtype}")
    _, numbered = np.unique(np.concatenate([array.ravel() for array in on_host]), return_inverse=True)
    parts = np.split(numbered.astype(np.int32), np.cumsum([array.size for array in on_host])[:-1])
    return [jnp.asarray(part.reshape(array.shape)) for part, array in zip(parts, on_host, strict=True)]
