"""The map on GPUs follows its definition."""

import pytest

from sparrow.kernels.cuda import ids, tuning
from tests.kernels.ids.contract import Contract


class TestCuda(Contract):
    @pytest.fixture
    def backend(self, monkeypatch):
        """Small chunks: a batch of a few entries has several."""
        monkeypatch.setattr(tuning, "for_ids", lambda: tuning.IdsTuning(ask_threads=32, ask_items=1))
        return ids
