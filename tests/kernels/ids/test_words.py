"""64-bit numbers as two words."""

import numpy as np

from sparrow.kernels import ids
from sparrow.kernels.ids import words
from tests.kernels.ids.oracle import mix64_of

NUMBERS = np.random.default_rng(0).integers(0, 2**64, 1000, dtype=np.uint64)
NUMBERS[:4] = [0, 1, 2**64 - 1, 2**32 - 1]


def test_the_hash_is_the_one_of_the_tables():
    given = ids.words_of(NUMBERS)
    low, high = words.mix64((given[:, 0], given[:, 1]))
    assert np.array_equal(ids.numbers_of(np.stack([low, high], -1)), words.mix64_of_numpy(NUMBERS))
    assert [mix64_of(int(x)) for x in NUMBERS] == words.mix64_of_numpy(NUMBERS).tolist()


def test_parts_on_host_and_device():
    """Both give the same part, and the parts are even."""
    for parts in (1, 3, 8, 1000):
        part = ids.part_of_numpy(NUMBERS, parts)
        assert np.array_equal(part, ids.part_of(ids.words_of(NUMBERS), parts))
        assert part.max() < parts
    assert np.bincount(ids.part_of_numpy(NUMBERS, 4)).min() > 200
