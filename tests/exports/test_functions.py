"""Functions of your own: what cannot be exported, and what is found out about the rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.exports.functions import Arguments, exported, rows_are_independent, used
from sparrow.serving.tensors import Streamed, read, write

ARGUMENTS = Arguments({"w": jax.ShapeDtypeStruct((3,), jnp.float32)}, {"a": 3, "b": 3}, {"c": 2})


def test_only_what_is_used_remains():
    def function(parameters, acts, numbers):
        _ = acts["b"] + numbers["c"].sum()
        return {"y": acts["a"] @ parameters["w"]}

    assert used(function, ARGUMENTS) == (["w"], ["a"], [])
    made = exported(function, ARGUMENTS)
    assert made.outputs == {"y": (["batch"], "float32")}
    assert made.platforms == ("cpu", "cuda", "rocm", "tpu")
    call = jax.export.deserialize(bytearray(made.artifact)).call
    assert call({"w": jnp.ones(3)}, {"a": jnp.ones((5, 3))}, {})["y"].tolist() == [3.0] * 5


def test_what_cannot_be_exported():
    with pytest.raises(ValueError, match=r"any number of rows: .* write x.shape\[0\] or -1 instead of len"):
        exported(lambda p, acts, n: {"y": acts["a"].reshape(len(acts["a"]), 3)}, ARGUMENTS)
    with pytest.raises(ValueError, match=r"'y' has the shape \(3,\): its first axis is not the rows"):
        exported(lambda p, acts, n: {"y": acts["a"].sum(axis=0)}, ARGUMENTS)


def test_calls_of_other_code_are_a_warning():
    def solves(parameters, acts, numbers):
        return {"y": acts["a"] @ jnp.linalg.cholesky(jnp.diag(parameters["w"]))}

    with pytest.warns(UserWarning, match=r"load\(folder, custom_calls=\[.*'lapack_spotrf_ffi'.*\]\)"):
        exported(solves, ARGUMENTS)


def test_rows_that_depend_on_each_other():
    parameters = {"w": jnp.ones(3)}
    alone = {"y": lambda a: a @ parameters["w"], "sorted": lambda a: jnp.sort(a, axis=1)}
    mixed = {"mean": lambda a: a - a.mean(axis=0), "rank": lambda a: jnp.argsort(jnp.argsort(a[:, 0]))}
    for functions, expected in ((alone, True), (mixed, False)):
        for name, function in functions.items():
            made = rows_are_independent(lambda p, acts, n, f=function: {"y": f(acts["a"])}, ARGUMENTS, parameters)
            assert made is expected, name


def test_the_package_reads_what_is_written(tmp_path, monkeypatch):
    from safetensors.numpy import load_file

    rng = np.random.default_rng(0)
    half = rng.normal(size=(7, 3)).astype(jnp.bfloat16)  # an odd number of bytes / 4: the next array is aligned even so
    single = rng.normal(size=(10, 4)).astype(np.float32)
    short = rng.normal(size=(2, 2)).astype(np.float16)
    arrays = {"a/b": half, "ünï": single, "c": short}
    streams = [Streamed(n, a.shape, a.dtype.name, [a[:2], a[2:]]) for n, a in arrays.items()]
    written = write(tmp_path / "x.safetensors", streams)
    assert written.bytes == (tmp_path / "x.safetensors").stat().st_size
    with (tmp_path / "x.safetensors").open("rb") as file:
        copied = read(file, "x")
        monkeypatch.setattr("sparrow.serving.tensors.COPIED_BYTES", 0)
        mapped = read(file, "x")
    for held in (load_file(tmp_path / "x.safetensors"), copied, mapped):
        assert set(held) == set(arrays)
        for name, array in arrays.items():
            assert (held[name].dtype, held[name].tobytes()) == (array.dtype, array.tobytes())
    for held in (copied, mapped):
        assert held["ünï"].flags.aligned
        assert not held["ünï"].flags.writeable
    with pytest.raises(ValueError, match="the blocks hold 8 bytes, their shapes give 16"):
        write(tmp_path / "y.safetensors", [Streamed("c", (2, 4), "float16", [short])])
