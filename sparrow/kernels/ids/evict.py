"""The choice of who leaves, in JAX: by sorting all places."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from sparrow.kernels.ids.types import DISTANCE_LFU, LFU, LRU, NONE, Settings
from sparrow.kernels.ids.words import mix64

_NEVER = np.iinfo(np.int32).max


class Pools(NamedTuple):
    """The settings of the pools; numpy arrays of 2 * S."""

    begin: np.ndarray
    size: np.ndarray
    policy: np.ndarray
    expire: np.ndarray
    hard: np.ndarray  # whether a missing place is an error


class Leaving(NamedTuple):
    """The choice.

    Attributes:
      places: (M,) int32, ascending; beyond their number: the number of places.
      lots: (2 * S,) int32, their number by pool.
      quiet: (2 * S,) int32, the step before which nothing expires.
    """

    places: jax.Array
    lots: jax.Array
    quiet: jax.Array


def pools(s: Settings) -> Pools:
    """Return the pools of ``s``: the rows of the segments, then their waiting places, which are LRU."""
    begin, end = np.array(s.pools, np.int32).reshape(-1, 2).T
    policy = [segment.policy for segment in s.segments] + [LRU] * len(s.segments)
    expire = [segment.expire for segment in s.segments] + [0] * len(s.segments)
    hard = [segment.policy != NONE for segment in s.segments] + [False] * len(s.segments)
    return Pools(begin, end - begin, np.array(policy), np.array(expire, np.int32), np.array(hard))


def pool_of(s: Settings, places: jax.Array) -> jax.Array:
    """Return the pool of each place that belongs to one."""
    by_begin = np.argsort(pools(s).begin, kind="stable").astype(np.int32)
    at = jnp.searchsorted(jnp.asarray(pools(s).begin[by_begin]), places, side="right") - 1
    return jnp.asarray(by_begin)[at]


def no_longer_used(last: jax.Array, step: jax.Array, expire: jax.Array) -> jax.Array:
    """Whether an id that was used in step ``last`` has expired."""
    return (expire > 0) & (last >= 0) & (step - last > expire)


def may_free(p: Pools, quiet: jax.Array, step: jax.Array) -> jax.Array:
    """(2 * S,) whether a pool can have ids to evict."""
    return jnp.asarray(p.policy != NONE) | (jnp.asarray(p.expire > 0) & (step >= quiet))


def choose(
    s: Settings,
    ids: jax.Array,
    last: jax.Array,
    count: jax.Array,
    quiet: jax.Array,
    missing: jax.Array,
    step: jax.Array,
    most: int,
) -> Leaving:
    """Choose ids to evict for the ``missing`` places of each pool; ``most``: the limit of their sum."""
    p = pools(s)
    scanned = (missing > 0) & may_free(p, quiet, step)
    at = jnp.arange(s.places, dtype=jnp.int32)
    pool = pool_of(s, at)
    policy, expire = jnp.asarray(p.policy)[pool], jnp.asarray(p.expire)[pool]
    inside = (at >= jnp.asarray(p.begin)[pool]) & (at < jnp.asarray(p.begin + p.size)[pool])
    expired = no_longer_used(last, step, expire)
    may_leave = inside & scanned[pool] & (last >= 0) & (last != step) & ((policy != NONE) | expired)
    # The bits of floats that are not negative have the order of the floats.
    ages = (step - last).astype(jnp.uint32) + 1
    often = jax.lax.bitcast_convert_type(count.astype(jnp.float32) / ages.astype(jnp.float32), jnp.int32)
    seldom = jnp.where(policy == DISTANCE_LFU, often, count)
    seldom = jnp.where((policy >= LFU) & ~expired, seldom, 0)
    low, high = mix64((ids[:, 0], ids[:, 1]))
    group = jnp.where(may_leave, pool, 2 * len(s.segments))
    *_, order = jax.lax.sort((group, seldom, last, high, low, at), num_keys=5)
    able = jnp.zeros(len(p.size), jnp.int32).at[group].add(1, mode="drop")
    wanted = jnp.maximum(missing, -(-p.size // 100))
    lots = jnp.where(scanned, jnp.minimum(wanted, able), 0)
    begins = jnp.cumsum(able) - able
    rank = at - begins[jnp.minimum(group[order], len(p.size) - 1)]
    chosen = may_leave[order] & (rank < lots[jnp.minimum(group[order], len(p.size) - 1)])
    leaves = jnp.zeros(s.places, bool).at[order].set(chosen)
    places = jnp.nonzero(leaves, size=most, fill_value=s.places)[0].astype(jnp.int32)
    # Where every expired id of a segment with NONE leaves, the oldest one that stays is the next that can expire.
    stays = inside & (last >= 0) & ~leaves
    oldest = jnp.full(len(p.size), step, jnp.int32).at[pool].min(jnp.where(stays, last, step))
    never = oldest > _NEVER - 1 - jnp.asarray(p.expire)
    until = jnp.where(never, _NEVER, oldest + 1 + jnp.asarray(p.expire))
    alone = scanned & jnp.asarray(p.policy == NONE) & (able <= wanted)
    return Leaving(places, lots, jnp.where(alone, until, quiet))
