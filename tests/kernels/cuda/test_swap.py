"""Rows move between the cache and pinned host memory as the reference says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import ids, records
from sparrow.kernels.cuda import ids as cuda_ids
from sparrow.kernels.cuda import swap

SHAPES = {
    "row-wise": [(16, "float32"), (0, "float32")],
    "vectors": [(6, "bfloat16"), (6, "float32"), (0, "float32"), (6, "float32")],
    "no slots": [(5, "float32")],
    "long": [(72, "float32"), (72, "float32"), (0, "float32"), (0, "float32")],
}


@pytest.mark.parametrize("name", SHAPES)
def test_cache_of_host_memory(name):
    """A cache of two tables, far smaller than they are: after each step it holds the rows of the batch."""
    slots, rows = 24, 200
    s = ids.settings([ids.Segment(0, 10, slots), ids.Segment(12, 24, slots)], slots)
    arrays = [jnp.zeros((slots, dim) if dim else (slots,), dtype) for dim, dtype in SHAPES[name]]
    layout = records.layout(arrays)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(rows, *array.shape[1:])).astype(array.dtype) for array in arrays]
    memory = swap.PinnedMemory(rows * layout.bytes)
    assert not memory.array.any()
    memory.array[:] = layout.packed(values).reshape(-1)
    host = jnp.asarray(layout.packed(values))
    state = ids.init(s)
    mine = arrays

    @jax.jit
    def step(state, arrays, mine, host, keys, segments, number):
        done = cuda_ids.assign(s, state, keys, segments, number)
        arrays, host = records.swap(layout, arrays, host, done.fresh, done.gone)
        mine = swap.swap(layout, mine, jnp.asarray(memory.address), rows, done.fresh, done.gone)
        changed = [array + (done.rows == 3).sum().astype(array.dtype) for array in arrays]
        mine = [array + (done.rows == 3).sum().astype(array.dtype) for array in mine]
        return done, changed, mine, host

    for number in range(12):
        segments = np.repeat(np.arange(2, dtype=np.int32), 6)
        keys = (rng.integers(0, 100, 12) + 100 * segments).astype(np.uint64)
        done, arrays, mine, host = step(state, arrays, mine, host, ids.words_of(keys), segments, np.int32(number))
        state = done.state
        for ours, want in zip(mine, arrays, strict=True):
            assert np.array_equal(ours, want)
        assert np.array_equal(memory.array.reshape(rows, -1), host)
    assert ids.numbers(s, state)[0]["evicted"] > 10
    memory.close()
