"""These tests need the compiled backend: on a CPU without one they fail, so that it cannot vanish unnoticed."""

import pytest

from sparrow.kernels import native
from sparrow.kernels.device_kind import platform


@pytest.fixture(autouse=True, scope="package")
def _needs_native():
    if platform() != "cpu":
        pytest.skip("JAX does not run on the CPU here")
    assert native.unavailable() is None
