"""XLA's options for the programs of a run: on CUDA alone, and only those that XLA knows."""

import pytest

from sparrow.runs.step import compiling
from sparrow.runs.step.compiling import Compiled


def test_matrix_products_on_cuda_go_to_cublas():
    assert compiling.options_for("PJRT C API\ncuda 12090") == {"xla_gpu_enable_triton_gemm": False}
    assert compiling.options_for("cpu") is None
    assert compiling.compiler_options() is None  # of the tests' own devices


def test_an_option_that_xla_does_not_know_is_left_out(monkeypatch):
    monkeypatch.setattr(compiling, "CUBLAS", {"xla_gpu_no_such_option": False})
    assert compiling.options_for("cuda") is None


def test_programs_get_the_options(monkeypatch):
    made = Compiled("training", lambda x: x + 1, batch=0)
    assert made(1) == 2
    monkeypatch.setattr("sparrow.runs.step.compiling.compiler_options", lambda: {"xla_gpu_no_such_option": False})
    with pytest.raises(Exception, match="xla_gpu_no_such_option"):
        Compiled("training", lambda x: x + 1, batch=0)(1)
