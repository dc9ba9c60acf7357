"""The map in JAX follows its definition."""

import pytest

from sparrow.kernels.ids import xla
from tests.kernels.ids.contract import Contract


class TestXla(Contract):
    @pytest.fixture
    def backend(self):
        return xla
