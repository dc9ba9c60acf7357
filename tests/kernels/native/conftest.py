"""These tests need the compiled backend: where there is none they fail, so that it cannot vanish unnoticed."""

import pytest

from sparrow.kernels import native


@pytest.fixture(autouse=True, scope="package")
def _needs_native():
    assert native.unavailable() is None
