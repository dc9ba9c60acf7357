"""Files of named arrays are what the package safetensors writes, to the array."""

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from sparrow.files import CODES, Streamed, dtype_of, streamed, write_tensors


def test_any_arrays_are_read_by_the_package(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 2, (3, 5)).astype(dtype_of(name)) for name in CODES if name != "bfloat16"}
    arrays |= {"empty": np.zeros((0, 4)), "scalar": np.int64(7), "turned": np.arange(12).reshape(3, 4).T}
    arrays |= {"big-endian": np.arange(5, dtype=">i4"), "half": np.arange(8)[::2]}
    pieces = []
    size = write_tensors(tmp_path / "a", streamed(arrays), lambda data: pieces.append(bytes(data)))
    assert b"".join(pieces) == (tmp_path / "a").read_bytes()
    assert size == (tmp_path / "a").stat().st_size
    found = safetensors.numpy.load_file(tmp_path / "a")
    assert set(found) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == np.asarray(array).dtype.newbyteorder("<")


def test_blocks_follow_each_other(tmp_path):
    array = np.arange(20, dtype=np.float32).reshape(10, 2).astype(ml_dtypes.bfloat16)
    write_tensors(tmp_path / "a", [Streamed("x", (10, 2), "bfloat16", [array[:3], array[3:]])], lambda data: None)
    with safetensors.safe_open(tmp_path / "a", "numpy") as file:
        assert file.get_slice("x").get_shape() == [10, 2]
        assert file.get_slice("x").get_dtype() == "BF16"
    assert (tmp_path / "a").read_bytes().endswith(array.tobytes())
    with pytest.raises(ValueError, match="the blocks hold 12 bytes, their shapes give 40"):
        write_tensors(tmp_path / "b", [Streamed("x", (10, 2), "bfloat16", [array[:3]])], lambda data: None)
