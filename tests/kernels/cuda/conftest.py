"""The CUDA kernels on a GPU, or on the emulation where there is none."""

import pytest

from tests.kernels.cuda import emulator


@pytest.fixture(scope="module", autouse=True)
def gpu():
    """The machine that runs backend 'cuda' in these tests."""
    with emulator.gpu_or_emulation() as machine:
        yield machine
