"""Shared fixtures."""

import pytest

import sparrow as sp

AVAILABLE = [name for name, state in sp.backends().items() if state == "available"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each file to one worker: its tests share what they compiled and trained. A file may group its own tests."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(str(item.path)))


@pytest.fixture(params=AVAILABLE)
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend that runs on this machine."""
    return request.param
