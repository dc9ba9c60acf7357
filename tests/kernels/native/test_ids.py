"""The map in C++ follows its definition."""

import pytest

from sparrow.kernels.native import ids
from tests.kernels.ids.contract import Contract


class TestNative(Contract):
    @pytest.fixture
    def backend(self):
        return ids
