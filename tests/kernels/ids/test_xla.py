"""The map in JAX follows its definition."""

import pytest

from sparrow.kernels.ids import xla
from tests.kernels.ids.contract import SETTINGS, Contract

QUICK = ("admission", "expiring")  # the others take seconds to compile, and have nothing that these have not


class TestXla(Contract):
    UNDONE_STEPS = 10  # a step takes 0.1 s here

    @pytest.fixture
    def backend(self):
        return xla

    @pytest.mark.parametrize("name", [pytest.param(x, marks=[] if x in QUICK else pytest.mark.slow) for x in SETTINGS])
    def test_random_batches(self, backend, name):
        super().test_random_batches(backend, name)
