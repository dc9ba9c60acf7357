"""What is compiled when, where it is kept, and what happens where nothing can be compiled."""

import os
import pathlib
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import pytest

import sparrow as sp
from sparrow.embedding.stacking import row_step as embedder_row_step
from sparrow.kernels import choose, native
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


def test_without_compiler_and_libraries_the_backend_says_so(tmp_path: pathlib.Path):
    code = """
        compiler.PACKAGED = pathlib.Path("nowhere")
        print(backends()["native"])
        print(choose("auto", row_step(SGD(), 8)).name)
        try:
            choose("native", row_step(SGD(), 8))
        except ValueError as error:
            print(error)
    """
    reason, chosen, error = run(code, SPARROW_CACHE_DIR=str(tmp_path), CXX="no-such-compiler")
    assert reason.endswith("no C++ compiler was found; install g++ or clang++, or set CXX")
    assert chosen == "xla"
    assert error.startswith("backend 'native' is not available here")


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
    with pytest.raises(compiler.CompileError, match="SPARROW_CACHE_DIR"):
        compiler.compile_library(tmp_path / "file" / "x.so", compiler.levels()[0], "int x;")


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
