"""Shared fixtures."""

import pytest

import sparrow as sp

AVAILABLE = [name for name, state in sp.backends().items() if state == "available"]


@pytest.fixture(params=AVAILABLE)
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend that runs on this machine."""
    return request.param
