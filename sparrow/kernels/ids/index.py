"""The index of a map in JAX: buckets of places, found by a hash of the id.

An id goes to the first free pair of its bucket, or of the next bucket that has one. Each bucket counts the ids that
passed over it: a search ends at a bucket that none has passed over. An id that leaves takes itself out of these counts,
so that nothing is ever rebuilt (Bronson and Shi, "Open-sourcing F14 for faster, more memory-efficient hash tables",
2019). The functions here take many ids at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from sparrow.kernels.ids.types import EMPTY, SALT, WAYS
from sparrow.kernels.ids.words import high_product, mix64, xor

_PASSED = 2 * WAYS  # the column of a bucket that counts
_Search = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]
_Change = tuple[jax.Array, jax.Array, jax.Array]


class Keys(NamedTuple):
    """Ids with their hashes.

    Attributes:
      low, high: (N,) uint32, the id.
      segment: (N,) int32.
      home: (N,) int32, the bucket where a search begins.
      tag: (N,) uint32, kept beside the place.
    """

    low: jax.Array
    high: jax.Array
    segment: jax.Array
    home: jax.Array
    tag: jax.Array


def keys(index: jax.Array, table: jax.Array, ids: jax.Array, segments: jax.Array) -> Keys:
    """Hash ``ids``, (N, 2), of ``segments``."""
    low, high = ids[:, 0], ids[:, 1]
    salt = table.at[segments, SALT].get(mode="clip"), table.at[segments, SALT + 1].get(mode="clip")
    tag, spread = mix64(xor((low, high), salt))
    home = high_product(spread, jnp.uint32(index.shape[0])).astype(jnp.int32)
    return Keys(low, high, segments, home, tag)


def search(
    index: jax.Array, ids: jax.Array, segment_of: Callable[[jax.Array], jax.Array], wanted: Keys, present: jax.Array
) -> jax.Array:
    """(N,) int32: the place of each key, -1 where it has none. ``segment_of``: of places."""
    buckets = index.shape[0]

    def look(at: _Search) -> _Search:
        searching, bucket, way, probes, place = at
        line = index[bucket]  # (N, 32)
        places, tags = line[:, :_PASSED:2], line[:, 1:_PASSED:2]
        fits = (places != EMPTY) & (tags == wanted.tag[:, None]) & (jnp.arange(WAYS) >= way[:, None])
        some, first = fits.any(1), jnp.argmax(fits, 1).astype(jnp.int32)
        candidate = jnp.where(some, jnp.take_along_axis(places, first[:, None], 1)[:, 0], 0).astype(jnp.int32)
        same = (ids[candidate, 0] == wanted.low) & (ids[candidate, 1] == wanted.high)
        found = some & same & (segment_of(candidate) == wanted.segment)
        place = jnp.where(searching & found, candidate, place)
        over = ~some & ((line[:, _PASSED] == 0) | (probes + 1 >= buckets))
        return (
            searching & ~found & ~over,
            jnp.where(some, bucket, (bucket + 1) % buckets),
            jnp.where(some, first + 1, 0),
            jnp.where(some, probes, probes + 1),
            place,
        )

    none = jnp.zeros_like(wanted.home)
    start = (present, wanted.home, none, none, none - 1)
    return jax.lax.while_loop(lambda at: at[0].any(), look, start)[-1]


def insert(index: jax.Array, new: Keys, places: jax.Array, present: jax.Array) -> jax.Array:
    """Enter ``places`` under the keys ``new``, which are not there yet."""
    buckets, count = index.shape[0], places.shape[0]

    def put(at: _Change) -> _Change:
        index, waiting, bucket = at
        target = jnp.where(waiting, bucket, buckets)
        order = jnp.argsort(target, stable=True)
        begins = jnp.searchsorted(target[order], target[order], side="left")
        rank = jnp.zeros(count, jnp.int32).at[order].set((jnp.arange(count) - begins).astype(jnp.int32))
        empty = index[bucket, :_PASSED:2] == EMPTY  # (N, 15)
        before = jnp.cumsum(empty, 1) - 1
        mine = empty & (before == rank[:, None])
        fits, way = waiting & mine.any(1), jnp.argmax(mine, 1)
        into = jnp.where(fits, bucket, buckets)
        index = index.at[into, 2 * way].set(places.astype(jnp.uint32), mode="drop")
        index = index.at[into, 2 * way + 1].set(new.tag, mode="drop")
        passed = waiting & ~fits
        index = index.at[jnp.where(passed, bucket, buckets), _PASSED].add(jnp.uint32(1), mode="drop")
        return index, passed, jnp.where(passed, (bucket + 1) % buckets, bucket)

    return jax.lax.while_loop(lambda at: at[1].any(), put, (index, present, new.home))[0]


def remove(index: jax.Array, old: Keys, places: jax.Array, present: jax.Array) -> jax.Array:
    """Take ``places`` out, which are there under the keys ``old``."""
    buckets = index.shape[0]

    def take(at: _Change) -> _Change:
        index, searching, bucket = at
        fits = index[bucket, :_PASSED:2] == places.astype(jnp.uint32)[:, None]
        found, way = searching & fits.any(1), jnp.argmax(fits, 1)
        from_ = jnp.where(found, bucket, buckets)
        index = index.at[from_, 2 * way].set(EMPTY, mode="drop")
        index = index.at[from_, 2 * way + 1].set(EMPTY, mode="drop")
        passed = searching & ~found
        index = index.at[jnp.where(passed, bucket, buckets), _PASSED].add(jnp.uint32(0xFFFFFFFF), mode="drop")
        return index, passed, jnp.where(passed, (bucket + 1) % buckets, bucket)

    return jax.lax.while_loop(lambda at: at[1].any(), take, (index, present, old.home))[0]


def empty(buckets: int) -> jax.Array:
    """(buckets, 32) uint32: an index without ids."""
    return jnp.full((buckets, 2 * WAYS + 2), EMPTY, jnp.uint32).at[:, _PASSED:].set(0)
