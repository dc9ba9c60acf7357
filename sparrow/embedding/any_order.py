"""A sum whose bits do not depend on the order of its terms: caches and shards hold the same rows in another order."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

BITS = 6  # bits of a digit: 2**26 digits add up without overflow
DIGITS = 8


def sum_in_any_order(parts: Sequence[jax.Array], axes: tuple[str, ...] = ()) -> jax.Array:
    """Return the sum of all numbers of ``parts``: the same bits in any order, and however they are divided into parts.

    Each number is cut into digits, counted from the power of two above the largest number, and digits are added as
    integers, which is exact. Bits more than ``BITS * DIGITS`` below that power are dropped: the relative error is below
    ``count * 2**-47`` and float32's own. A number that is not finite makes the sum not finite.

    Args:
      parts: (any,) float32 each, not negative; up to 2**26 numbers in all.
      axes: the axes of a mesh over which the numbers are spread.

    >>> a, b = jnp.array([1e8, 3.0, 1e-3]), jnp.array([0.25])
    >>> float(sum_in_any_order([a, b])) == float(sum_in_any_order([jnp.concatenate([b, a])[::-1]])) == 1e8
    True
    >>> float(sum_in_any_order([jnp.full(1000, 0.1)]))
    100.0
    """
    largest = jnp.stack([jnp.max(part, initial=0.0) for part in parts]).max()
    if axes:
        largest = jax.lax.pmax(largest, axes)  # type: ignore[no-untyped-call]
    exponent = jnp.clip(jax.lax.bitcast_convert_type(largest, jnp.uint32) >> 23, 26, 252)  # biased by 127
    scale = jax.lax.bitcast_convert_type((253 - exponent) << 23, jnp.float32)  # makes the largest less than 1
    sums = jnp.stack([_digit_sums(part * scale) for part in parts]).sum(axis=0)  # (DIGITS,) uint32
    if axes:
        sums = jax.lax.psum(sums, axes)  # type: ignore[no-untyped-call]
    total = jnp.zeros((), jnp.float32)
    for digit in reversed(range(DIGITS)):
        total = (total + sums[digit].astype(jnp.float32)) * 2.0**-BITS
    return jnp.where(jnp.isfinite(largest), total / scale, largest)


def _digit_sums(fractions: jax.Array) -> jax.Array:
    """(DIGITS,) uint32: for each digit, highest first, its sum over all ``fractions``."""
    sums = []
    for _ in range(DIGITS):
        fractions = fractions * 2.0**BITS
        digits = jnp.floor(fractions)
        fractions = fractions - digits
        sums.append(jnp.sum(digits.astype(jnp.uint32)))
    return jnp.stack(sums)
