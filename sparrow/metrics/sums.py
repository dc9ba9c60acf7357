"""Sums that stay exact over billions of rows, in float32.

A float32 number stops counting at 2**24. A sum is therefore kept as an unevaluated pair ``high + low`` of float32
numbers, about 48 bits together: integers are exact up to 2**47 (1.4e14), and other sums keep a relative error
near 2**-46, whatever the number of updates and the order of the merges. It needs no 64-bit mode and runs in any
jitted step. A `Sum` of shape ``s`` is one array ``(2, *s)``, so that adding it is one small kernel.

Reference: D. Knuth, *The Art of Computer Programming* 2, section 4.2.2 (the error of one addition, exactly);
Y. Hida, X. Li, D. Bailey, "Algorithms for quad-double precision floating point arithmetic", 2001.

>>> total = split(jnp.float32(2**24))
>>> for _ in range(3):
...     total = add(total, split(jnp.float32(1)))
>>> float(to_float64(total)) - 2**24                 # plain float32 gives 0.0
3.0
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

Sum = jax.Array  # (2, ...) float32: high, low


def split(values: jax.Array) -> Sum:
    """Numbers as pairs. Exact for float32, for int32, and for 48 of float64's 53 bits."""
    if jnp.issubdtype(values.dtype, jnp.integer):
        # Half of the bits at a time: the rounded float32 of a large int32 may not fit an int32 any more.
        upper = (values >> 12) << 12
        return add(split(upper.astype(jnp.float32)), split((values - upper).astype(jnp.float32)))
    high = values.astype(jnp.float32)
    return jnp.stack([high, (values - high).astype(jnp.float32)])


def add(a: Sum, b: Sum) -> Sum:
    """Return ``a + b``, to about 2**-46 of ``|a| + |b|``. Commutative, bit by bit; NumPy arrays stay NumPy arrays."""
    xp: Any = np if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else jnp
    return xp.stack(_add(a[0], a[1], b[0], b[1]))  # type: ignore[no-any-return]


def _add(a_high: Any, a_low: Any, b_high: Any, b_low: Any) -> tuple[Any, Any]:
    high = a_high + b_high
    shifted = high - a_high
    error = (a_high - (high - shifted)) + (b_high - shifted)  # high + error is a_high + b_high exactly
    low = error + (a_low + b_low)
    total = high + low  # so that |low| is at most half an ulp of high again
    return total, low - (total - high)


def reduce(values: jax.Array) -> Sum:
    """Return the sum over the first axis: every addition is made in pairs.

    >>> values = jnp.asarray([2.0**24] + [1.0] * 7)
    >>> int(to_float64(reduce(values))) - 2**24
    7
    """
    zero = np.float32(0)
    pairs = split(values)

    def monoid(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return _add(*a, *b)

    return jnp.stack(apart(jax.lax.reduce((pairs[0], pairs[1]), (zero, zero), monoid, (0,))))


def apart(made: Any) -> Any:
    """Return sums that are computed before they are joined: within a concatenation, a GPU has one thread for each."""
    return jax.lax.optimization_barrier(made)  # type: ignore[no-untyped-call]


def bin_sums(index: jax.Array, values: jax.Array | None, bins: int) -> Sum:
    """Return the sum of ``values`` (n, ...) in each bin; None: the number of rows, exactly.

    Within one batch the additions are float32's own (a bin's relative error is near 1e-7, and does not grow with
    the number of batches: they are added in pairs). Integer values are exact up to 2**24 per bin and batch.
    """
    if values is None:
        return split(jnp.zeros((bins,), jnp.int32).at[index].add(1))
    return split(jnp.zeros((bins, *values.shape[1:]), values.dtype).at[index].add(values))


def to_float64(total: Sum) -> NDArray[np.float64]:
    """Return the value, on the host."""
    high, low = np.asarray(total, np.float64)
    return np.asarray(high + low)
