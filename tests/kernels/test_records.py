"""Rows as records of host memory."""

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


def test_swap_stores_before_it_reads():
    table, slot = jnp.arange(8.0).reshape(4, 2), jnp.arange(4.0)
    layout = records.layout([table, slot])
    host = layout.packed(
        [np.full((6, 2), 50.0, np.float32) + np.arange(6, dtype=np.float32)[:, None], -np.ones(6, np.float32)]
    )
    fresh = Changed(jnp.array([2, 0, 4]), jnp.array([[5, 0], [3, 0], [0, 0]], jnp.uint32), jnp.array([2]))
    gone = Changed(jnp.array([2, 3, 4]), jnp.array([[1, 0], [2, 0], [0, 0]], jnp.uint32), jnp.array([2]))
    (table, slot), host = records.swap(layout, [table, slot], jnp.asarray(host), fresh, gone)
    assert table.tolist() == [[53, 53], [2, 3], [55, 55], [6, 7]]
    assert slot.tolist() == [-1, 1, -1, 3]
    rows, numbers = layout.unpacked(np.asarray(host))
    assert rows.tolist() == [[50, 50], [4, 5], [6, 7], [53, 53], [54, 54], [55, 55]]
    assert numbers.tolist() == [-1, 2, 3, -1, -1, -1]
