"""The map from ids to rows on GPUs; `sparrow.kernels.ids` has the definition, ``src/ids*.cu`` the kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sparrow.kernels import cuda
from sparrow.kernels.cuda import machine, source, tuning
from sparrow.kernels.cuda.plan import NOTHING, Argument, Call, number, together
from sparrow.kernels.ids.types import (
    Assigned,
    Changed,
    IdState,
    Settings,
    Undo,
    assigned,
    most_gone,
    table,
    undo_shapes,
)

name = "cuda"
unavailable = cuda.unavailable

MOST_SEGMENTS = 2048  # as in src/ids_ask.cu
_FIND_THREADS, _COUNT_THREADS, _EVICT_THREADS, _SELECT_THREADS, _APPLY_THREADS = 256, 512, 512, 1024, 256  # as there
_INDEX_BLOCKS = 8  # a multiprocessor
_BINS = 2048 + 21 * 64 + 53  # of a pool, with their groups
_PLAN_NUMBERS, _PLAN_FIELDS = 16, 16  # as in src/ids.cuh
_COUNTERS = 4


def find(s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int) -> jax.Array:
    """(N,) int32: the row of each id; expired ids have none."""
    count = ids.shape[0]
    if count == 0:
        return jnp.zeros(0, jnp.int32)
    call = Call()
    given = {
        "segments": call.input(jnp.asarray(table(s))),
        "keys": call.input(ids),
        "entry_segments": call.input(segments),
        "step": call.input(jnp.asarray(step, jnp.int32)),
        **{name: call.input(getattr(state, name)) for name in ("ids", "last", "buckets")},
        "rows": call.output((count,), jnp.int32),
    }
    call.launch(0, source.IDS_FIND, -(-count // _FIND_THREADS), _FIND_THREADS, _arguments(s, state, given, count))
    return _bound(s, call)[0]


def assign(s: Settings, state: IdState, ids: jax.Array, segments: jax.Array, step: jax.Array | int) -> Assigned:
    """Find the rows of ids, and give rows to new ones; with the state donated, in place."""
    count, num_segments = ids.shape[0], len(s.segments)
    if count == 0:
        return _nothing(s, state)
    tuned, cores = tuning.for_ids(num_segments), machine.here().cores
    lost, pools = most_gone(s, count), 2 * num_segments
    chunk = tuning.ids_chunk(count, num_segments)
    chunks = -(-count // chunk)
    listed = tuning.ids_listed(count)
    set_size = 1 << max(5, (2 * count - 1).bit_length())
    words = sum(-(-(end - begin) // 32) for begin, end in s.pools)

    call = Call()
    given = {
        "segments": call.input(jnp.asarray(table(s))),
        "keys": call.input(ids),
        "entry_segments": call.input(segments),
        "step": call.input(jnp.asarray(step, jnp.int32)),
    }
    given |= {name: call.in_place(array) for name, array in zip(_STATE, state, strict=True)}
    given["rows"] = call.output((count,), jnp.int32)
    for kind, size in (("fresh", count), ("gone", lost)):
        given[f"{kind}_rows"] = call.output((size,), jnp.int32)
        given[f"{kind}_ids"] = call.output((size, 2), jnp.uint32)
        given[f"{kind}_ends"] = call.output((num_segments,), jnp.int32)
    entries, undo_left = undo_shapes(s, count)
    given |= _planes(call.output(entries, jnp.int32), count)
    given["undo_left"] = call.output(undo_left, jnp.int32)
    given |= {name: call.scratch(4 * count) for name in ("refs", "asks", "ranks", "move_ranks")}
    given |= {name: call.scratch(4 * words) for name in ("certain", "candidates")}
    given["list"] = call.scratch(4 * listed)
    left = undo_left[1]
    given |= {name: call.scratch(size * left) for name, size in (("left", 4), ("left_segments", 4), ("left_ids", 8))}
    zeros = {
        "plan": 4 * (_PLAN_NUMBERS + _PLAN_FIELDS * (pools + 1)),
        "bins": 4 * pools * _BINS,
        "first": 4 * set_size,
        "times": 4 * set_size,
        "chunk_counts": 4 * chunks * _COUNTERS * num_segments,
        "asked": 4 * _COUNTERS * num_segments,
    }
    zero_size = sum(-(-size // 16) * 16 for size in zeros.values())
    at = call.scratch(zero_size)
    call.zero(at, zero_size)
    for name, size in zeros.items():
        given[name] = at
        at = at.at(-(-size // 16) * 16)
    arguments = _arguments(s, state, given, count, set_size, lost, left, chunks, chunk, listed)

    def launch(kernel: int, grid: int, block: int) -> None:
        call.launch(0, kernel, grid, block, arguments)

    launch(source.IDS_MARK, -(-count // _FIND_THREADS), _FIND_THREADS)
    launch(source.IDS_ASK, -(-chunks // tuned.ask_warps), 32 * tuned.ask_warps)
    launch(source.IDS_COUNT, _COUNTERS * num_segments, _COUNT_THREADS)
    launch(source.IDS_WEIGH, 2 * cores, _EVICT_THREADS)
    launch(source.IDS_CHOOSE, 2 * cores, _EVICT_THREADS)
    launch(source.IDS_SELECT, pools, _SELECT_THREADS)
    launch(source.IDS_APPLY, -(-count // _APPLY_THREADS), _APPLY_THREADS)
    if any(segment.waiting for segment in s.segments):
        launch(source.IDS_GIVE_BACK, -(-count // _APPLY_THREADS), _APPLY_THREADS)
    return assigned(_bound(s, call), state)


def undone(s: Settings, state: IdState, undo: Undo, ids: jax.Array, when: jax.Array) -> IdState:
    """Return the state before a call with ``ids``, where ``when`` is true; ``short`` stays. The host does not wait."""
    count, left = ids.shape[0], undo.left.shape[1]
    if count == 0:
        return state
    call = Call()
    changed = ("ids", "last", "counts", "free", "buckets")
    given = {name: call.in_place(getattr(state, name)) for name in changed}
    given |= {"segments": call.input(jnp.asarray(table(s))), "keys": call.input(ids)}
    given |= _planes(call.input(undo.entries), count)
    given |= {"undo_left": call.input(undo.left), "when": call.input(when.astype(jnp.int32))}
    arguments = _arguments(s, state, given, count, 0, 0, left, 0, 0, 0)
    call.launch(0, source.IDS_UNDO, -(-max(count, left) // _APPLY_THREADS), _APPLY_THREADS, arguments)
    _launch_index(s, state, call, arguments)
    made: dict[str, Any] = dict(zip(changed, _bound(s, call), strict=True))
    numbers = {name: jnp.where(when, getattr(undo, name), getattr(state, name)) for name in ("pools", "totals")}
    return state._replace(**made, **numbers)


def indexed(s: Settings, state: IdState) -> IdState:
    """Return the state with an index that is built from its ids."""
    call = Call()
    given = {
        "segments": call.input(jnp.asarray(table(s))),
        "ids": call.input(state.ids),
        "last": call.input(state.last),
        "buckets": call.output(state.buckets.shape, jnp.uint32),
    }
    _launch_index(s, state, call, _arguments(s, state, given))
    return state._replace(buckets=_bound(s, call)[0])


def _launch_index(s: Settings, state: IdState, call: Call, arguments: list[Argument]) -> None:
    blocks = _INDEX_BLOCKS * machine.here().cores
    for kernel, threads in ((source.IDS_CLEAR, state.buckets.size), (source.IDS_INDEX, s.places)):
        call.launch(0, kernel, min(blocks, -(-threads // _FIND_THREADS)), _FIND_THREADS, arguments)


def _planes(entries: Argument, count: int) -> dict[str, Argument]:
    """Return the rows of ``entries`` in `Undo`, by their names in struct Ids."""
    names = ("places", "before", "was", "taken", "positions")
    return {name: entries.at(4 * count * i) for i, name in enumerate(names)}


_STATE = IdState._fields
# The fields of struct Ids in src/ids.cuh.
_POINTERS = (
    *("segments", "keys", "entry_segments", "step"),
    *("ids", "last", "counts", "free", "pools", "totals", "short", "buckets"),
    *("rows", "fresh_rows", "fresh_ids", "fresh_ends", "gone_rows", "gone_ids", "gone_ends"),
    *("places", "before", "was", "taken", "positions", "undo_left", "when"),
    *("refs", "asks", "ranks", "move_ranks", "first", "times", "chunk_counts", "asked"),
    *("plan", "bins", "certain", "candidates", "list", "left", "left_segments", "left_ids"),
)


def _arguments(
    s: Settings, state: IdState, given: dict[str, Argument], count: int = 0, set_size: int = 0, *sizes: int
) -> list[Argument]:
    """Return the one parameter of the kernels; ``sizes``: the last ones of struct Ids."""
    places, buckets = state.last.shape[0], state.buckets.shape[0]
    numbers = (count, len(s.segments), s.rows, places, buckets, set_size, *(sizes or (0,) * 5))
    return together([*(given.get(name, NOTHING) for name in _POINTERS), *map(number, numbers)])


def _bound(s: Settings, call: Call) -> list[jax.Array]:
    if len(s.segments) > MOST_SEGMENTS:
        raise ValueError(f"a stack has {len(s.segments)} segments of ids; backend 'cuda' takes at most {MOST_SEGMENTS}")
    return call.bind(machine.load(machine.here(), [source.ids_module(tuning.for_ids(len(s.segments)))]))


def _nothing(s: Settings, state: IdState) -> Assigned:
    def changed(size: int) -> Changed:
        ends = jnp.zeros(len(s.segments), jnp.int32)
        return Changed(jnp.full(size, s.rows, jnp.int32), jnp.zeros((size, 2), jnp.uint32), ends)

    entries, left = (jnp.full(shape, -1, jnp.int32) for shape in undo_shapes(s, 0))
    undo = Undo(entries, left, state.pools, state.totals)
    return Assigned(state, jnp.zeros(0, jnp.int32), changed(0), changed(most_gone(s, 0)), undo)
