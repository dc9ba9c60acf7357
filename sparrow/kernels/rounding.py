"""Writing float32 rows into 16-bit tables: stochastic rounding from a counter, the same bits on every backend."""

from __future__ import annotations

import jax
import jax.numpy as jnp

GOLDEN = 0x9E3779B9  # 2**32 / golden ratio: spreads consecutive counters


def mix(x: jax.Array) -> jax.Array:
    """Return a bijection of uint32 that scatters every bit (Chris Wellons' lowbias32)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)


def noise(seed: jax.Array, row: jax.Array, dim: int) -> jax.Array:
    """(dim,) uint32 of 16 uniform bits for one row: a pure function of seed, row and column.

    Columns 2k and 2k + 1 take the lower and the upper half of one hash, which a kernel computes once for both.
    """
    columns = jax.lax.iota(jnp.uint32, dim)
    of_row = mix(seed + row.astype(jnp.uint32) * jnp.uint32(GOLDEN))
    of_pair = mix(of_row + (columns >> 1) * jnp.uint32(GOLDEN))
    return jnp.where((columns & 1) == 0, of_pair & jnp.uint32(0xFFFF), of_pair >> 16)


def round_stochastic(x: jax.Array, bits: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Round float32 ``x`` to one of its two neighbors in ``dtype``, up with the probability that keeps the mean.

    ``bits`` is the result of `noise`.

    >>> x = jnp.full(1000, 1.0 + 2**-10)                        # an eighth of the way from 1 to the next bfloat16
    >>> rounded = round_stochastic(x, noise(jnp.uint32(0), jnp.int32(0), 1000), jnp.dtype("bfloat16"))
    >>> sorted({float(v) for v in rounded}), 100 < int((rounded > 1).sum()) < 150
    ([1.0, 1.0078125], True)
    """
    as_bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
    if dtype == jnp.bfloat16:
        # bfloat16 is the upper half of a float32: add noise below the cut, then cut. Right for subnormals and
        # infinities too; the carry would turn some NaN into numbers.
        raised = jnp.where(x == x, as_bits + bits, jnp.uint32(0x7FC00000))
        return jax.lax.bitcast_convert_type((raised >> 16).astype(jnp.uint16), jnp.bfloat16)
    if dtype == jnp.float16:
        # The distance between float16 neighbors at x: 2**(exponent - 10), and no less than 2**-24.
        exponent = jnp.maximum(as_bits >> 23 & jnp.uint32(0xFF), 113)
        spacing = jax.lax.bitcast_convert_type((exponent - 10) << 23, jnp.float32)
        inverse = jax.lax.bitcast_convert_type((264 - exponent) << 23, jnp.float32)
        uniform = (bits >> 3).astype(jnp.float32) * 2.0**-13  # as many bits as float16 cuts off
        rounded = jnp.floor(x * inverse + uniform) * spacing
        return jnp.where(jnp.isfinite(x), rounded, x).astype(dtype)
    raise ValueError(f"stochastic rounding is for bfloat16 and float16, not {dtype}")
