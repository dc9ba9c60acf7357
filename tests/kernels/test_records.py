"""Rows as records of host memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import records
from sparrow.kernels.ids import Changed

SHAPES = {
    "row-wise": [((7, 16), "float32"), ((7,), "float32")],
    "vectors": [((7, 6), "bfloat16"), ((7, 6), "float32"), ((7,), "float32"), ((7, 6), "float32")],
    "no slots": [((7, 5), "float32")],
}


@pytest.mark.parametrize("name", SHAPES)
def test_records_hold_rows(name):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(jnp.dtype(dtype)) for shape, dtype in SHAPES[name]]
    layout = records.layout(arrays)
    packed = layout.packed(arrays)
    assert packed.shape == (7, layout.bytes)
    assert layout.bytes % 32 == 0
    for array, back in zip(arrays, layout.unpacked(packed), strict=True):
        assert array.dtype == back.dtype
        assert np.array_equal(array, back)


def test_rows_move_between_a_cache_and_records():
    table, slot = jnp.arange(8.0).reshape(4, 2), jnp.arange(4.0)
    layout = records.layout([table, slot])
    memory = records.Memory(6 * layout.bytes)
    rows, numbers = layout.views(memory.array.reshape(6, -1))
    rows[:], numbers[:] = 50.0 + np.arange(6)[:, None], -1
    fresh = Changed(jnp.array([2, 0, 4]), jnp.array([[5, 0], [3, 0], [0, 0]], jnp.uint32), jnp.array([2]))
    gone = Changed(jnp.array([2, 3, 4]), jnp.array([[1, 0], [2, 0], [0, 0]], jnp.uint32), jnp.array([2]))
    table, slot = jax.jit(lambda *args: records.swap(layout, *args, 6, fresh, gone))([table, slot], memory.address)
    assert table.tolist() == [[53, 53], [2, 3], [55, 55], [6, 7]]
    assert slot.tolist() == [-1, 1, -1, 3]
    assert rows.tolist() == [[50, 50], [4, 5], [6, 7], [53, 53], [54, 54], [55, 55]]
    assert numbers.tolist() == [-1, 2, 3, -1, -1, -1]
    asked, slots = jnp.array([2, 5, 6, -1]), jnp.array([4, 2, 4, 4])
    assert records.read(layout, table, memory.address, 6, asked, slots).tolist() == [[6, 7], [55, 55], [0, 0], [0, 0]]
    done = records.store(layout, [table + 1, slot], memory.address, 6, gone)
    jax.block_until_ready(done)
    assert rows[:3].tolist() == [[50, 50], [56, 56], [7, 8]]
    assert not np.asarray(records.read(layout, table, np.zeros(2, np.uint32), 6, asked, slots + 2)).any()
