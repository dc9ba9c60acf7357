"""Sums that stay exact over billions of rows, in float32.

A float32 number stops counting at 2**24. A `Sum` is therefore an unevaluated pair ``high + low`` of float32
numbers, about 48 bits together: integers are exact up to 2**48 (2.8e14), and other sums keep a relative error
near 2**-46, whatever the number of updates and the order of the merges. It needs no 64-bit mode and runs in any
jitted step.

Reference: D. Knuth, *The Art of Computer Programming* 2, section 4.2.2 (the error of one addition, exactly);
Y. Hida, X. Li, D. Bailey, "Algorithms for quad-double precision floating point arithmetic", 2001.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray


class Sum(NamedTuple):
    """``high + low``, two float32 arrays of one shape.

    >>> total = zeros(())
    >>> for value in (2.0**24, 1.0, 1.0):
    ...     total = add(total, split(jnp.float32(value)))
    >>> float(to_float64(total)) - 2.0**24                 # plain float32 would say 0.0
    2.0
    """

    high: jax.Array
    low: jax.Array


def zeros(shape: tuple[int, ...]) -> Sum:
    """The empty sum."""
    return Sum(jnp.asarray(np.zeros(shape, np.float32)), jnp.asarray(np.zeros(shape, np.float32)))


def split(values: jax.Array) -> Sum:
    """One number as a pair. Exact for float32, for int32, and for 48 of float64's 53 bits."""
    high = values.astype(jnp.float32)
    if values.dtype == jnp.float32:
        return Sum(high, jnp.zeros_like(high))
    if jnp.issubdtype(values.dtype, jnp.integer):
        # Half of the bits at a time: the rounded float32 of a large int32 may not fit an int32 any more.
        upper = (values >> 12) << 12
        return add(
            Sum(upper.astype(jnp.float32), jnp.zeros_like(high)),
            Sum((values - upper).astype(jnp.float32), jnp.zeros_like(high)),
        )
    return Sum(high, (values - high).astype(jnp.float32))


def add(a: Sum, b: Sum) -> Sum:
    """``a + b``, to about 2**-46 of ``|a| + |b|``. Commutative, bit by bit."""
    high = a.high + b.high
    shifted = high - a.high
    error = (a.high - (high - shifted)) + (b.high - shifted)  # high + error is a.high + b.high exactly
    low = error + (a.low + b.low)
    total = high + low  # so that |low| is at most half an ulp of high again
    return Sum(total, low - (total - high))


def add_all(a: Mapping[str, Sum], b: Mapping[str, Sum]) -> dict[str, Sum]:
    """``a + b``, name by name. One addition of all numbers: a step gets one small kernel, not one a name."""

    def flat(state: Mapping[str, Sum]) -> tuple[Sum, Callable[[jax.Array], dict[str, jax.Array]]]:
        (high, unravel), (low, _) = (ravel_pytree({name: state[name][part] for name in a}) for part in (0, 1))
        return Sum(high, low), unravel

    (flat_a, unravel), (flat_b, _) = flat(a), flat(b)
    high, low = (unravel(part) for part in add(flat_a, flat_b))
    return {name: Sum(high[name], low[name]) for name in a}


def scale(total: Sum, factor: float | jax.Array) -> Sum:
    """``factor * total``, to float32's relative precision."""
    return Sum(total.high * factor, total.low * factor)


def reduce(values: jax.Array) -> Sum:
    """The sum over the first axis: every addition is made in pairs.

    >>> values = jnp.asarray([2.0**24] + [1.0] * 7)
    >>> int(to_float64(reduce(values))) - 2**24
    7
    """
    zero = np.float32(0)

    def monoid(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(add(Sum(*a), Sum(*b)))

    high, low = jax.lax.reduce(tuple(split(values)), (zero, zero), monoid, (0,))
    return Sum(high, low)


def bin_counts(index: jax.Array, bins: int) -> Sum:
    """How many rows fall in each of ``bins`` bins: integers, exact."""
    return split(jnp.zeros((bins,), jnp.int32).at[index].add(1))


def bin_sums(index: jax.Array, values: jax.Array, bins: int) -> Sum:
    """The sum of ``values`` (n, ...) in each bin.

    Within one batch the additions are float32's own (a bin's relative error is near 1e-7, and does not grow with
    the number of batches: they are added in pairs). Integer values are exact up to 2**24 per bin and batch.
    """
    return split(jnp.zeros((bins, *values.shape[1:]), values.dtype).at[index].add(values))


def to_float64(total: Sum) -> NDArray[np.float64]:
    """The value, on the host."""
    return np.asarray(total.high, np.float64) + np.asarray(total.low, np.float64)
