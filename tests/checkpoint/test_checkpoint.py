"""Checkpoints by themselves: what goes in comes out, whatever it is."""

import contextlib
import json

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from sparrow.checkpoint import CheckpointError, Checkpoints, Damaged, Key, Saved, TableRows
from sparrow.checkpoint.content import ABOUT, STATE, write_manifest
from sparrow.checkpoint.transfer import copied

ARRAYS = {
    "columns first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "turned/around": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "every second": np.arange(10)[::2],
    "sixteen bits": np.arange(4).astype(ml_dtypes.bfloat16),
    "a number": np.array(7, np.uint32),
    "a flag": np.array(True),
    "nothing": np.zeros((0, 3), np.float32),
}


def saved(folder, arrays):
    table = jnp.arange(12.0).reshape(6, 2)
    checkpoints = Checkpoints(folder)
    checkpoints.save(
        3, {Key("t"): TableRows(table, 1, 4), Key("t", "m"): TableRows(table[:, 0], 1, 4)}, arrays, {"note": "x"}
    )
    checkpoints.close()
    return Saved(folder / "3")


@pytest.mark.parametrize("arrays", [ARRAYS, {}], ids=["all kinds", "none"])
def test_what_goes_in_comes_out(tmp_path, arrays):
    checkpoint = saved(tmp_path, arrays)
    assert (checkpoint.step, checkpoint.about["note"]) == (3, "x")
    found = checkpoint.arrays()
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    rows = {key: np.concatenate([block for _, block in checkpoint.rows(key)]) for key in checkpoint.tables}
    np.testing.assert_array_equal(rows[Key("t")], np.arange(2.0, 10.0).reshape(4, 2))
    np.testing.assert_array_equal(rows[Key("t", "m")], [2.0, 4.0, 6.0, 8.0])


def test_a_checkpoint_of_another_form(tmp_path):
    """Said as what it is, not as damage."""
    path = saved(tmp_path, {}).path
    about = json.loads((path / ABOUT).read_text())
    (path / ABOUT).write_text(json.dumps(about | {"form": 1}))
    write_manifest(path, {}, leave_out={"manifest.json"})
    with pytest.raises(CheckpointError, match="was saved in format version 1, and this version reads format version"):
        Saved(path)


@pytest.mark.parametrize("name", [ABOUT, STATE])
def test_a_manifest_that_lacks_a_file(tmp_path, name):
    path = saved(tmp_path, ARRAYS).path
    write_manifest(path, {}, leave_out={"manifest.json", name})
    with pytest.raises(Damaged, match=f"{name}: the manifest does not list it"):
        Saved(path)


def test_copies_are_apart_from_the_tables():
    """On a GPU blocks come through pinned memory; here they are plain copies."""
    array = jnp.arange(40_000, dtype=jnp.float32).reshape(10_000, 4)
    rows = TableRows(array, 100, 9_000)
    made = copied(rows.shape, array.dtype, rows.blocks())
    np.testing.assert_array_equal(made, np.asarray(array)[100:9_100])
    assert not np.shares_memory(made, np.asarray(array))


@pytest.mark.parametrize("copy_bytes", [0, 1 << 20])
def test_tables_that_are_copied_or_written_first_are_the_same(tmp_path, copy_bytes):
    tables = {Key("t"): TableRows(jnp.arange(8_000.0).reshape(2_000, 4), 0, 2_000)}
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        checkpoints.save(3, tables, {"a": np.zeros(2)}, {}, copy_bytes)
    saved = Saved(tmp_path / "3")
    held = np.concatenate([block for _, block in saved.rows(Key("t"))])
    np.testing.assert_array_equal(held.reshape(-1), np.arange(8_000))
