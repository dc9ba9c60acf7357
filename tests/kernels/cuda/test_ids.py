"""The map on GPUs follows its definition."""

import pytest

from sparrow.kernels import ids as ids_map
from sparrow.kernels.cuda import ids, tuning
from tests.kernels.ids.contract import Contract
from tests.kernels.ids.running import Pair, counts_by_segment


class TestCuda(Contract):
    @pytest.fixture
    def backend(self, monkeypatch):
        """Small chunks: a batch of a few entries has several."""
        monkeypatch.setattr(tuning, "ids_chunk", lambda count, num_segments: 32)
        return ids

    def test_without_lists(self, backend, monkeypatch):
        """Many ids of one age: the exact choice goes through bits."""
        monkeypatch.setattr(tuning, "ids_listed", lambda count: 0)
        s = ids_map.settings([ids_map.Segment(0, 333, 400), ids_map.Segment(333, 400, 400, policy=ids_map.LFU)], 400)
        pair = Pair(backend, s)
        for step in range(12):
            pair.assign([1000 * step + i for i in range(60)], [0] * 44 + [1] * 16, step // 3)
        assert all(one["evicted"] for one in counts_by_segment(s, pair.state))
