"""What is compiled when, where it is kept, and what happens where nothing can be compiled."""

import ctypes
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import pytest

import sparrow as sp
from sparrow.embedding.stacking import row_step as embedder_row_step
from sparrow.kernels import cache, choose, native
from sparrow.kernels.native import compiler, library, shipped
from sparrow.kernels.native.translate import translate
from sparrow.rules import SGD
from tests.kernels.native.problems import row_step

RULE = """
    import dataclasses, pathlib, sys, warnings
    import jax.numpy as jnp
    from sparrow.kernels import BACKENDS, backends, choose, native
    from sparrow.kernels.native import compiler
    from sparrow.rules import Rule, SGD
    from tests.kernels.native.problems import row_step

    @dataclasses.dataclass(frozen=True)
    class Mine(Rule):
        def update(self, row, grad, slots, h):
            return row - jnp.tanh(h.learning_rate * grad), slots
"""


def run(code: str, **environment: str) -> list[str]:
    text = textwrap.dedent(RULE) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", text], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_users_rule_is_compiled_once_and_kept(tmp_path: pathlib.Path):
    code = "print(native.unsupported(row_step(Mine(), 8)))"
    assert run(code, SPARROW_CACHE_DIR=str(tmp_path)) == ["None"]
    (made,) = [path for path in tmp_path.iterdir() if "row-step" in path.name]
    before = made.stat().st_mtime_ns
    # The second process has no compiler, and does not need one.
    assert run(code, SPARROW_CACHE_DIR=str(tmp_path), CXX="no-such-compiler") == ["None"]
    assert made.stat().st_mtime_ns == before


def test_without_a_compiler_a_users_rule_runs_on_xla_with_one_warning(tmp_path: pathlib.Path):
    code = """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(3):
                print(choose("auto", row_step(Mine(), 8)).name)
        print(*(str(warning.message) for warning in caught))
        print(choose("auto", row_step(SGD(), 8)).name)
    """
    *names, warning, shipped_rule = run(code, SPARROW_CACHE_DIR=str(tmp_path), CXX="no-such-compiler")
    assert names == ["xla"] * 3
    assert warning == (
        "Mine runs on the slower 'xla' backend, because 'native' cannot: "
        "no C++ compiler was found; install g++ or clang++, or set CXX"
    )
    assert shipped_rule == "native"


def test_without_compiler_and_libraries_one_warning_gives_the_reason(tmp_path: pathlib.Path):
    code = """
        compiler.PACKAGED = pathlib.Path("nowhere")
        print(backends()["native"])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            print(*(choose("auto", row_step(SGD(), dim)).name for dim in (8, 16)))
        print(*(str(warning.message) for warning in caught))
        try:
            choose("native", row_step(SGD(), 8))
        except ValueError as error:
            print(error)
    """
    reason, chosen, warning, error = run(code, SPARROW_CACHE_DIR=str(tmp_path), CXX="no-such-compiler")
    assert reason.endswith("no C++ compiler was found; install g++ or clang++, or set CXX")
    assert chosen == "xla xla"
    assert warning == f"tables run on the slower 'xla' backend, because 'native' cannot run here: {reason}"
    assert error.startswith("backend 'native' is not available here")


def test_without_compiler_and_libraries_one_warning_is_about_batches(tmp_path: pathlib.Path):
    code = """
        compiler.PACKAGED = pathlib.Path("nowhere")
        from sparrow.data import Converter, IdFeature, Tables
        from sparrow.feed import Batching, Pipeline
        features = [IdFeature("item", num_buckets=9, embedding_dim=4)]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                print(len(next(iter(Pipeline(Tables({"item": [1, 2]}), Converter(features), Batching(2))))))
        print(*(str(warning.message) for warning in caught))
    """
    *sizes, warning = run(code, SPARROW_CACHE_DIR=str(tmp_path), CXX="no-such-compiler")
    assert sizes == ["2", "2"]
    assert warning.startswith("batches are prepared by slower code: the library 'feed' could not be loaded: ")


def test_where_jax_uses_another_device_the_backend_says_so(monkeypatch):
    monkeypatch.setattr(native, "platform", lambda: "gpu")
    with pytest.raises(ValueError, match="it runs on the CPU, and JAX uses the GPU here"):
        choose("native", row_step(SGD(), 8))


def test_a_compiler_that_fails_is_quoted(tmp_path: pathlib.Path):
    with pytest.raises(compiler.CompileError, match=r"failed: .*error"):
        compiler.compile_library(tmp_path / "x.so", compiler.levels()[0], "this is no C++")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: pathlib.Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(compiler.CompileError, match=r"cannot write .*file/x.so"):
        compiler.compile_library(tmp_path / "file" / "x.so", compiler.levels()[0], "int x;")


SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }'
NAME = "answer-0123456789abcdef.so"


def answer() -> int:
    return library.open_library(NAME, compiler.levels()[0], SOURCE, symbols=["answer"]).answer()


@pytest.fixture
def kept(tmp_path: pathlib.Path, monkeypatch) -> pathlib.Path:
    """A cache with one library, which this process has not loaded."""
    monkeypatch.setenv("SPARROW_CACHE_DIR", str(tmp_path / "cache"))
    return cache.keep(NAME, compiler.compiled(compiler.levels()[0], SOURCE))


def test_a_library_that_was_cut_off_is_compiled_again(kept: pathlib.Path):
    data = kept.read_bytes()
    kept.write_bytes(data[:5000])
    assert answer() == 42
    assert kept.read_bytes() == data


def test_a_library_without_the_symbol_is_compiled_again(kept: pathlib.Path):
    kept.unlink()
    other = cache.keep(NAME, compiler.compiled(compiler.levels()[0], SOURCE.replace("answer", "question")))
    assert answer() == 42
    assert not other.exists()
    assert kept.exists()


def test_a_library_that_others_may_write_is_compiled_again(kept: pathlib.Path):
    kept.chmod(0o666)
    assert answer() == 42
    assert kept.stat().st_mode & 0o777 == 0o600


def test_where_the_folder_is_not_ones_own_libraries_are_compiled_for_the_process(kept: pathlib.Path):
    kept.parent.chmod(0o777)
    before = kept.stat().st_mtime_ns
    with pytest.warns(UserWarning, match=r"every process compiles them again: others may write .*/cache, so no code"):
        assert answer() == 42
    assert kept.stat().st_mtime_ns == before


def test_where_the_folder_forbids_execution_libraries_are_loaded_from_elsewhere(kept: pathlib.Path, monkeypatch):
    opened = ctypes.CDLL

    def noexec(path: str) -> ctypes.CDLL:
        if path.startswith(str(kept.parent)):
            raise OSError(f"{path}: failed to map segment from shared object")
        return opened(path)

    monkeypatch.setattr(ctypes, "CDLL", noexec)
    with pytest.warns(UserWarning, match=r"failed to map segment .* \(is .*/cache mounted noexec\?"):
        assert answer() == 42

    def noexec_everywhere(path: str) -> ctypes.CDLL:
        raise OSError(f"{path}: failed to map segment from shared object")

    monkeypatch.setattr(ctypes, "CDLL", noexec_everywhere)
    with pytest.raises(compiler.CompileError, match="failed to map segment"):
        answer()


def test_a_packaged_library_that_was_cut_off_is_not_loaded(tmp_path: pathlib.Path, monkeypatch):
    monkeypatch.setattr(compiler, "PACKAGED", tmp_path / "lib")
    monkeypatch.setenv("SPARROW_CACHE_DIR", str(tmp_path / "cache"))
    path = compiler.compile_library(tmp_path / "lib" / NAME, compiler.levels()[0], SOURCE)
    whole = path.read_bytes()
    (tmp_path / "lib" / compiler.CHECKSUMS).write_text(json.dumps({NAME: hashlib.sha256(whole).hexdigest()}))
    assert compiler.packaged(NAME) == path
    path.write_bytes(whole[:5000])
    assert compiler.packaged(NAME) is None
    assert answer() == 42


def test_a_user_without_a_home_or_an_entry_has_the_packaged_libraries(tmp_path: pathlib.Path):
    code = """
        import os, pwd

        def unknown(number):
            raise KeyError(number)

        pwd.getpwuid = unknown
        for name in ("HOME", "XDG_CACHE_HOME", "SPARROW_CACHE_DIR"):
            os.environ.pop(name, None)
        from sparrow.kernels import cache
        print(backends()["native"])
        print(choose("auto", row_step(SGD(), 8)).name, choose("auto", row_step(Mine(), 8)).name)
        print(cache.folder())
    """
    available, chosen, folder = run(code, TMPDIR=str(tmp_path))
    assert available == "available"
    assert chosen == "native native"
    assert folder == str(tmp_path / f"sparrow-{os.geteuid()}")
    assert pathlib.Path(folder).stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(bool(compiler.extra_flags()), reason="other flags: the packaged libraries are not used")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_package_brings_what_the_embedder_asks_for(dtype):
    loaded = library.load()
    assert not isinstance(loaded, str)
    assert loaded.shipped is not None
    for rule in shipped.rules():
        table = sp.TableSpec(name="t", vocabulary_size=9, embedding_dim=24, optimizer=rule, dtype=dtype)
        assert hasattr(loaded.shipped, translate(embedder_row_step(table)).symbol), rule


def test_the_instruction_set_is_the_best_that_the_processor_has():
    assert library._choose_level(99) == compiler.levels()[-1]
    assert library._choose_level(0) == compiler.levels()[0]
    if len(compiler.levels()) > 1:
        assert [library._choose_level(n) for n in (2, 3, 4)] == ["x86-64-v2", "x86-64-v3", "x86-64-v4"]


@pytest.mark.slow
@pytest.mark.skipif("x86-64-v2" not in compiler.levels(), reason="one instruction set only")
def test_the_least_instruction_set_gives_the_same_numbers(tmp_path: pathlib.Path):
    code = """
        from sparrow.kernels.native import library
        if {least}:
            library._choose_level = lambda cpu: "x86-64-v2"
        import numpy as np
        from sparrow.rules import Adam
        from tests.kernels.native.problems import random_grads, random_state, scalars
        rng = np.random.default_rng(0)
        rule = Adam()
        step = row_step(rule, 13)
        table, slots = native.update(step, *random_state(step, 50, rng), random_grads(rng, 13, 50), scalars(rule))
        print(library.load().level, *np.asarray(table).ravel())
    """
    least, best = (run(code.replace("{least}", str(least)), SPARROW_CACHE_DIR=str(tmp_path)) for least in (True, False))
    (level, *numbers), (_, *others) = least[0].split(), best[0].split()
    assert level == "x86-64-v2"
    assert jnp.allclose(jnp.asarray(list(map(float, numbers))), jnp.asarray(list(map(float, others))), 1e-5, 1e-6)
