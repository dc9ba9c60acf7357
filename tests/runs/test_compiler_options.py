"""XLA's options for the programs of a run: on CUDA alone, and only those that XLA knows."""

import pytest

from sparrow.runs.loop import compiler_options
from sparrow.runs.loop.compiled import Compiled


def test_matrix_products_on_cuda_go_to_cublas():
    assert compiler_options.options_for("PJRT C API\ncuda 12090") == {"xla_gpu_enable_triton_gemm": False}
    assert compiler_options.options_for("cpu") is None
    assert compiler_options.compiler_options() is None  # of the tests' own devices


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setattr(compiler_options, "CUBLAS", {"xla_gpu_no_such_option": False})
    assert compiler_options.options_for("cuda") is None


def test_programs_get_the_options(monkeypatch):
    made = Compiled("training", lambda x: x + 1, batch=0)
    assert made(1) == 2
    monkeypatch.setattr("sparrow.runs.loop.compiled.compiler_options", lambda: {"xla_gpu_no_such_option": False})
    with pytest.raises(Exception, match="xla_gpu_no_such_option"):
        Compiled("training", lambda x: x + 1, batch=0)(1)
