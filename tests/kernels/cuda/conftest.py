"""The CUDA kernels on a GPU, or on the emulation where there is none."""

import pytest

from sparrow.kernels import cuda
from tests.kernels.cuda import emulator


@pytest.fixture(scope="module", autouse=True)
def gpu():
    """The machine that runs backend 'cuda' in these tests."""
    if cuda.unavailable() is None:
        yield None
        return
    if reason := emulator.unavailable():
        pytest.skip(f"no GPU, and no emulation: {reason}")
    with emulator.emulation() as machine:
        yield machine
