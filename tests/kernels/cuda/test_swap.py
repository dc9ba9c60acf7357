"""Rows move between the cache and pinned host memory as the reference says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import ids, records
from sparrow.kernels.cuda import ids as cuda_ids
from sparrow.kernels.cuda import swap
from tests.kernels.ids.running import counts_by_segment

SHAPES = {
    "row-wise": [(16, "float32"), (0, "float32")],
    "vectors": [(6, "bfloat16"), (6, "float32"), (0, "float32"), (6, "float32")],
    "no slots": [(5, "float32")],
    "long": [(72, "float32"), (72, "float32"), (0, "float32"), (0, "float32")],
}


@pytest.mark.parametrize("staged", [None, 3, 0])
@pytest.mark.parametrize("name", SHAPES)
def test_cache_of_host_memory(name, staged, monkeypatch):
    """A cache of two tables, far smaller than they are: after each step it holds the rows of the batch.

    Of the rows that leave it in a step, ``staged`` at most wait on the device while others come.
    """
    slots, rows = 24, 200
    s = ids.settings([ids.Segment(0, 10, slots), ids.Segment(12, 24, slots)], slots)
    arrays = [jnp.zeros((slots, dim) if dim else (slots,), dtype) for dim, dtype in SHAPES[name]]
    layout = records.layout(arrays)
    if staged is not None:
        monkeypatch.setattr(swap, "STAGED_BYTES", staged * layout.bytes)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(rows, *array.shape[1:])).astype(array.dtype) for array in arrays]
    memory = swap.PinnedMemory(rows * layout.bytes)
    assert not memory.array.any()
    memory.array[:] = layout.packed(values).reshape(-1)
    plain = records.Memory(rows * layout.bytes)
    plain.array[:] = memory.array
    state = ids.init(s)
    mine = arrays

    @jax.jit
    def step(state, arrays, mine, keys, segments, number):
        done = cuda_ids.assign(s, state, keys, segments, number)
        arrays = records.swap(layout, arrays, jnp.asarray(plain.address), rows, done.fresh, done.gone)
        given = (layout, mine, jnp.asarray(memory.address), rows)
        mine = swap.swap(*given, done.fresh, done.gone)
        changed = [array + (done.rows == 3).sum().astype(array.dtype) for array in arrays]
        mine = [array + (done.rows == 3).sum().astype(array.dtype) for array in mine]
        return done, changed, mine

    @jax.jit
    def read(state, table, asked):
        words = jnp.stack([asked.astype(jnp.uint32), jnp.zeros(len(asked), jnp.uint32)], 1)
        found = cuda_ids.find(s, state, words, (asked >= 100).astype(jnp.int32), 0)
        ours = swap.read(layout, table, jnp.asarray(memory.address), rows, asked, found)
        alone = swap.read(layout, table, jnp.asarray(memory.address), rows, asked, jnp.full_like(asked, slots))
        return ours, records.read(layout, table, jnp.asarray(plain.address), rows, asked, found), found, alone

    @jax.jit
    def store(arrays, state):
        used = jnp.where(state.last >= 0, jnp.arange(slots, dtype=jnp.int32), slots)
        every = ids.Changed(used, state.ids, jnp.array([10, slots]))
        ours = swap.store(layout, arrays, jnp.asarray(memory.address), rows, every)
        return ours, records.store(layout, arrays, jnp.asarray(plain.address), rows, every)

    for number in range(12):
        segments = np.repeat(np.arange(2, dtype=np.int32), 6)
        keys = (rng.integers(0, 100, 12) + 100 * segments).astype(np.uint64)
        done, arrays, mine = step(state, arrays, mine, ids.words_of(keys), segments, np.int32(number))
        state = done.state
        for ours, want in zip(mine, arrays, strict=True):
            assert np.array_equal(ours, want)
        assert np.array_equal(memory.array, plain.array)
    assert counts_by_segment(s, state)[0]["evicted"] > 10
    asked = np.array([*range(0, 200, 3), 400, -1], np.int32)
    ours, want, found, alone = read(state, mine[0], asked)
    assert 0 < (found < slots).sum() < len(asked) - 2
    assert np.array_equal(ours, want)
    assert not np.array_equal(ours, alone)
    jax.block_until_ready(store(mine, state))
    assert np.array_equal(memory.array, plain.array)
    assert np.array_equal(read(state, mine[0], asked)[3], ours)  # all rows are in host memory now
