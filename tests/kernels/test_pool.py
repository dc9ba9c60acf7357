"""The pool of the feed's memory: used again, and kept up to a limit."""

import numpy as np
import pytest

from sparrow.kernels import feed
from sparrow.kernels.feed import pool

pytestmark = pytest.mark.skipif(feed.unavailable() is not None, reason="the pool is compiled code's")


def test_some_idle_memory_is_kept():
    pool.trim(0)
    held = [pool.empty((size,), np.uint8) for size in (2**20, 2**20, 2**22)]
    held[0][:] = 7
    at = held[0].__array_interface__["data"][0]
    assert at % 64 == 0
    assert pool.trim(0) == 0  # nothing is idle
    del held
    given = pool.trim(2**22)
    assert 2**22 <= given < 2**23  # the largest first
    again = [pool.empty((2**20,), np.uint8) for _ in range(2)]
    assert at in [array.__array_interface__["data"][0] for array in again]
    del again
    assert 2**21 <= pool.trim(0) <= 2**22
    assert pool.trim(0) == 0
