"""The map in JAX: the reference of the other backends. `sparrow.kernels.ids.types` has the definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sparrow.kernels.ids import evict, index
from sparrow.kernels.ids.types import (
    ADMIT,
    CHANCE,
    EXPIRE,
    LFU,
    MOST_COUNTED,
    POLICY,
    SEED,
    UNKNOWN,
    Assigned,
    Changed,
    IdState,
    Settings,
    Undo,
    most_gone,
    table,
)
from sparrow.kernels.ids.words import less, mix64, xor

name = "xla"


def unavailable() -> str | None:
    """Why this backend cannot run here; None: it can."""
    return None


def find(s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int) -> jax.Array:
    """(N,) int32: the row of each id; expired ids have none."""
    places, _, live = _search(s, state, ids, segments, jnp.asarray(step, jnp.int32))
    return _rows(s, segments, jnp.where(live, places, -1))


def assign(s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int) -> Assigned:
    """Find the rows of ids, and give rows to new ones; with the state donated, in place."""
    step = jnp.asarray(step, jnp.int32)
    num_segments, count = len(s.segments), ids.shape[0]
    numbers = jnp.asarray(table(s))
    places, keys, live = _search(s, state, ids, segments, step)
    groups = _group(ids, segments)
    first = groups.first

    # Who asks for which pool.
    by_segment = numbers.at[segments].get(mode="clip")  # (N, 16)
    admit = by_segment[:, ADMIT].astype(jnp.int32)
    returned = first & ~live & (places >= 0) & (places < s.rows)
    waits = first & (places >= s.rows)
    seen = _saturated(groups.times, jnp.where(waits, state.counts.at[places].get(mode="clip"), 0))
    unknown = first & ~live & ~returned
    asks_row = unknown & (seen >= admit) & _lucky(by_segment, ids, step)
    asks_waiting = unknown & ~asks_row & ~waits & (admit > 1)
    nowhere = 2 * num_segments
    pool = jnp.where(asks_row, segments, jnp.where(asks_waiting, num_segments + segments, nowhere))
    rank, need = _ranks(pool, nowhere)

    # Who leaves.
    frozen = (state.short > 0).any()
    used = jnp.where((first & live) | returned | waits, places, s.places)
    before = state.last.at[used].get(mode="clip")
    last = state.last.at[used].set(jnp.where(frozen, before, step), mode="drop")
    p = evict.pools(s)
    free, quiet = state.pools[:, 0], state.pools[:, 1]
    missing = jnp.where(frozen, 0, need - free)
    most = most_gone(s, count) + most_gone(s, count, waiting=True)
    leaving = jax.lax.cond(
        ((missing > 0) & evict.may_free(p, quiet, step)).any(),
        lambda: evict.choose(s, state.ids, last, state.counts, quiet, missing, step, most),
        lambda: evict.Leaving(jnp.full(most, s.places, jnp.int32), jnp.zeros_like(free), quiet),
    )
    given = jnp.minimum(need, free + leaving.lots)
    short = jnp.where(jnp.asarray(p.hard), need - given, 0)[:num_segments]
    ok = ~frozen & (short == 0).all()
    given, lots = jnp.where(ok, given, 0), jnp.where(ok, leaving.lots, 0)

    # They leave: their places go on top of the stacks, the lowest one uppermost.
    leaves = jnp.where(ok, leaving.places, s.places)
    is_gone = leaves < s.places
    gone_ids = state.ids.at[leaves].get(mode="fill", fill_value=0)
    gone_pool = evict.pool_of(s, leaves)
    gone_rank = jnp.arange(most, dtype=jnp.int32) - (jnp.cumsum(lots) - lots)[gone_pool]
    top = jnp.asarray(p.begin) + free + lots  # (2 * S,)
    stack = state.free.at[jnp.where(is_gone, top[gone_pool] - 1 - gone_rank, s.places)].set(leaves, mode="drop")
    gone_keys = index.keys(state.buckets, numbers, gone_ids, gone_pool % num_segments)
    new_index = index.remove(state.buckets, gone_keys, leaves, is_gone)
    last = last.at[jnp.where(ok, s.places, used)].set(before, mode="drop").at[leaves].set(-1, mode="drop")
    all_ids = state.ids.at[leaves].set(0, mode="drop")
    counts = state.counts.at[leaves].set(0, mode="drop")

    # The others come: admitted ids leave their waiting places.
    comes = (rank < given.at[pool].get(mode="fill", fill_value=0)) & (pool < nowhere)
    admitted = comes & asks_row
    moves = admitted & waits
    old = jnp.where(moves, places, s.places)
    new_index = index.remove(new_index, keys, places, moves)
    last, all_ids, counts = (
        last.at[old].set(-1, mode="drop"),
        all_ids.at[old].set(0, mode="drop"),
        counts.at[old].set(0, mode="drop"),
    )
    new = stack.at[top.at[pool].get(mode="clip") - 1 - rank].get(mode="clip")
    to = jnp.where(comes, new, s.places)
    new_index = index.insert(new_index, keys, new, comes)
    last, all_ids = last.at[to].set(step, mode="drop"), all_ids.at[to].set(ids, mode="drop")
    lfu = by_segment[:, POLICY] >= LFU
    counts = counts.at[to].set(jnp.where(lfu | asks_waiting, seen, 0), mode="drop")
    kept = jnp.where(ok & waits & ~moves, places, s.places)
    counts = counts.at[kept].set(seen, mode="drop")
    again = jnp.where(ok & lfu & (returned | (first & live)), places, s.places)
    counted = jnp.where(returned, 0, counts.at[again].get(mode="clip"))
    counts = counts.at[again].set(_saturated(groups.times, counted), mode="drop")

    # The stacks without the places that were given out, and with those that admitted ids have left.
    after = free + lots - given
    move_rank, moved = _ranks(jnp.where(moves, num_segments + segments, nowhere), nowhere)
    at = (jnp.asarray(p.begin) + after).at[num_segments + segments].get(mode="clip") + move_rank
    stack = stack.at[jnp.where(moves, at, s.places)].set(places, mode="drop")

    back = returned & ok
    back_rank, back_count = _ranks(jnp.where(back, segments, nowhere), nowhere)
    rows_given, rows_lost = given[:num_segments], lots[:num_segments]
    fresh_ends = jnp.cumsum(rows_given + back_count[:num_segments])
    begin = (fresh_ends - rows_given - back_count[:num_segments]).at[segments].get(mode="clip")
    offset = jnp.where(back, rows_given.at[segments].get(mode="clip") + back_rank, rank)
    fresh_at = jnp.where(admitted | back, begin + offset, count)
    got = jnp.where(back, places, new)
    fresh = Changed(
        jnp.full(count, s.rows, jnp.int32).at[fresh_at].set(got, mode="drop"),
        jnp.zeros((count, 2), jnp.uint32).at[fresh_at].set(ids, mode="drop"),
        fresh_ends,
    )
    is_row = (leaves < s.rows)[: most_gone(s, count)]
    gone = Changed(
        jnp.where(is_row, leaves[: len(is_row)], s.rows),
        jnp.where(is_row[:, None], gone_ids[: len(is_row)], 0),
        jnp.cumsum(rows_lost),
    )
    refused = jnp.where(ok, need - given, 0)
    amounts = jnp.stack(
        [
            rows_given,
            rows_lost,
            back_count[:num_segments],
            refused[:num_segments],
            lots[num_segments:] + refused[num_segments:],
        ],
        1,
    )
    found = jnp.where(ok & (segments >= 0), places, -1)
    taken = jnp.where(comes & (rank >= lots.at[pool].get(mode="clip")), new, -1)
    position = top.at[pool].get(mode="clip") - 1 - rank
    was = [array.at[places].get(mode="clip") for array in (state.last, state.counts)]
    undo = Undo(
        jnp.stack([found, *was, taken, position]),
        _left(state, jnp.where(is_gone, leaves, -1), gone_ids),
        state.pools,
        state.totals,
    )
    state = IdState(
        all_ids,
        last,
        counts,
        stack,
        jnp.stack([after + moved, jnp.where(ok, leaving.quiet, quiet)], 1),
        _added(state.totals, amounts.astype(jnp.uint32)),
        jnp.where(frozen, state.short, short),
        new_index,
    )
    mine = jnp.where(live | (returned & ok), places, jnp.where(admitted, new, -1))
    mine = jnp.where(live, mine, mine[groups.leader])
    return Assigned(state, _rows(s, segments, mine), fresh, gone, undo)


def _left(state: IdState, places: jax.Array, ids: jax.Array) -> jax.Array:
    was = [array.at[places].get(mode="clip") for array in (state.last, state.counts)]
    return jnp.stack([places, *was, *jax.lax.bitcast_convert_type(ids, jnp.int32).T])


def undone(s: Settings, state: IdState, undo: Undo, ids: jax.Array, when: jax.Array) -> IdState:
    """Return the state before a call with ``ids``, where ``when`` is true; ``short`` stays."""
    return taken_back(s, state, undo, ids, when, indexed)


def taken_back(
    s: Settings,
    state: IdState,
    undo: Undo,
    ids: jax.Array,
    when: jax.Array,
    index_of: Callable[[Settings, IdState], IdState],
) -> IdState:
    """`undone`, with a new index by ``index_of``. A loop of one turn or none: it works in place, a branch may not."""
    place, before, count, taken, position = undo.entries
    left, left_last, left_count, *left_ids = undo.left
    old_ids = jax.lax.bitcast_convert_type(jnp.stack(left_ids, -1), jnp.uint32)

    def put(array: jax.Array, at: jax.Array, values: Any) -> jax.Array:
        return array.at[jnp.where(at < 0, s.places, at)].set(values, mode="drop")

    def body(carried: tuple[jax.Array, IdState]) -> tuple[jax.Array, IdState]:
        _, held = carried
        back = held._replace(
            ids=put(put(put(held.ids, taken, jnp.uint32(0)), place, ids), left, old_ids),
            last=put(put(put(held.last, taken, -1), jnp.where(before < -1, -1, place), before), left, left_last),
            counts=put(put(put(held.counts, taken, 0), place, count), left, left_count),
            free=put(held.free, jnp.where(taken < 0, -1, position), taken),
            pools=undo.pools,
            totals=undo.totals,
        )
        return jnp.array(False), index_of(s, back)

    return jax.lax.while_loop(lambda carried: carried[0], body, (when, state))[1]


_CHUNK = 1 << 16


def indexed(s: Settings, state: IdState) -> IdState:
    """Return the state with an index that is built from its ids."""
    numbers = jnp.asarray(table(s))

    def enter(chunk: jax.Array, built: jax.Array) -> jax.Array:
        places = chunk * _CHUNK + jnp.arange(_CHUNK, dtype=jnp.int32)
        segments = evict.pool_of(s, places) % len(s.segments)
        keys = index.keys(built, numbers, state.ids.at[places].get(mode="clip"), segments)
        return index.insert(built, keys, places, state.last.at[places].get(mode="fill", fill_value=-1) >= 0)

    chunks = -(-s.places // _CHUNK)
    return state._replace(buckets=jax.lax.fori_loop(0, chunks, enter, index.empty(state.buckets.shape[0])))


class _Groups(NamedTuple):
    """The entries of equal ids: the first position of each entry's id, whether it is the first, its occurrences."""

    leader: jax.Array
    first: jax.Array
    times: jax.Array


def _group(ids: jax.Array, segments: jax.Array) -> _Groups:
    count = ids.shape[0]
    position = jnp.arange(count, dtype=jnp.int32)
    *key, order = jax.lax.sort((segments, ids[:, 1], ids[:, 0], position), num_keys=4)
    differs = [column[1:] != column[:-1] for column in key]
    starts = jnp.concatenate([jnp.ones(min(count, 1), bool), differs[0] | differs[1] | differs[2]])
    group = jnp.cumsum(starts.astype(jnp.int32)) - 1
    first_of_group = jnp.full(count, count, jnp.int32).at[group].min(order)
    leader = jnp.zeros(count, jnp.int32).at[order].set(first_of_group[group])
    times = jnp.zeros(count, jnp.int32).at[leader].add(1)
    return _Groups(leader, (leader == position) & (segments >= 0), times)


def _search(
    s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array
) -> tuple[jax.Array, index.Keys, jax.Array]:
    """Return the place of each entry or -1, its key, and whether it has a row that has not expired."""
    numbers = jnp.asarray(table(s))
    keys = index.keys(state.buckets, numbers, ids, segments)

    def segment_of(places: jax.Array) -> jax.Array:
        return evict.pool_of(s, places) % len(s.segments)

    places = index.search(state.buckets, state.ids, segment_of, keys, segments >= 0)
    expire = numbers.at[segments, EXPIRE].get(mode="clip").astype(jnp.int32)
    expired = evict.no_longer_used(state.last.at[places].get(mode="clip"), step, expire)
    return places, keys, (places >= 0) & (places < s.rows) & ~expired


def _rows(s: Settings, segments: jax.Array, rows: jax.Array) -> jax.Array:
    unknown = jnp.asarray(table(s)).at[segments, UNKNOWN].get(mode="clip").astype(jnp.int32)
    return jnp.where(segments < 0, s.rows, jnp.where(rows >= 0, rows, unknown))


def _lucky(by_segment: jax.Array, ids: jax.Array, step: jax.Array) -> jax.Array:
    chance = by_segment[:, CHANCE], by_segment[:, CHANCE + 1]
    seed = by_segment[:, SEED], by_segment[:, SEED + 1]
    salt = mix64(xor(seed, (step.astype(jnp.uint32), jnp.uint32(0))))
    drawn = mix64(xor((ids[:, 0], ids[:, 1]), salt))
    return ((chance[0] | chance[1]) == 0) | less(drawn, chance)


def _ranks(pool: jax.Array, pools: int) -> tuple[jax.Array, jax.Array]:
    """Return the number of earlier entries of the same pool, and the number of entries by pool below ``pools``."""
    count = pool.shape[0]
    order = jnp.argsort(pool, stable=True)
    sizes = jnp.zeros(pools, jnp.int32).at[pool].add(1, mode="drop")
    begins = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(sizes)])[pool[order]]
    rank = jnp.zeros(count, jnp.int32).at[order].set(jnp.arange(count, dtype=jnp.int32) - begins)
    return rank, sizes


def _saturated(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.where(a > MOST_COUNTED - b, MOST_COUNTED, a + b)


def _added(totals: jax.Array, amounts: jax.Array) -> jax.Array:
    """Add (S, 5) to 64-bit counts."""
    low = totals[..., 0] + amounts
    return jnp.stack([low, totals[..., 1] + (low < amounts).astype(jnp.uint32)], -1)
