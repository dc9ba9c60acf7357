"""Hashes are fixed for ever: known values, and an independent statement of them in plain Python."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data.hashing import HashTable, hash_integers, hash_texts, mix64, modulo, shuffled
from sparrow.embedding import TableSpec
from sparrow.embedding.batches.inputs import hash_ids
from sparrow.kernels import feed
from sparrow.rules import SGD

MASK = 2**64 - 1
KNOWN = [
    "e220a8397b1dcdaf",
    "5e025f9ade9eaf3e",
    "afd2ea734b8e1a17",
    "6ed3b0eba90f9318",
    "1e73d75580fb404a",
    "3449a2b4e7ea18d2",
    "410c77b4b104069a",
]
SHUFFLED = [3, 0, 1, 5, 2, 7, 4, 6]


def plain_mix(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def plain_hash(text):
    data = text.encode()
    h = plain_mix(len(data))
    for k in range(0, len(data), 8):
        h = plain_mix(h ^ int.from_bytes(data[k : k + 8], "little"))
    return h


def test_known_values():
    texts = pa.array(
        ["", "a", "68fd1e64", "80e26c9b", "Sc\u00e8nes de la vie", "0123456789abcdef", "0123456789abcdefg"]
    )
    assert [f"{value:016x}" for value in hash_texts(texts).tolist()] == KNOWN
    assert hash_integers(np.array([0, 1, -1])).tolist() == [
        0xE220A8397B1DCDAF,
        0x910A2DEC89025CC1,
        0xE4D971771B652C20,
    ]


def test_texts_follow_the_plain_statement():
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("abc\u00e9\u4e16 \x00"), rng.integers(0, 40))) for _ in range(500)]
    assert hash_texts(pa.array(texts)).tolist() == [plain_hash(text) for text in texts]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_slices_missing_values_and_offset_widths(kind):
    texts = pa.array(["one", None, "a rather long text", "", "four"], kind)
    whole = [plain_hash(text or "") for text in texts.to_pylist()]
    assert hash_texts(texts).tolist() == whole
    assert hash_texts(texts.slice(2, 3)).tolist() == whole[2:]
    assert hash_texts(texts.slice(5)).tolist() == []


def test_a_missing_text_may_span_bytes():
    spans = pa.Array.from_buffers(
        pa.string(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 3, 5], np.int32)), pa.py_buffer(b"abcde")]
    )
    assert spans.to_pylist() == [None, "de"]
    assert hash_texts(spans).tolist() == [plain_hash(""), plain_hash("de")]


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint32, np.uint64])
def test_integers_hash_like_the_embedder(dtype):
    values = np.array([0, 1, 5, 100], dtype)
    if np.issubdtype(dtype, np.signedinteger):
        values[0] = -3
    table = TableSpec(name="t", vocabulary_size=97, embedding_dim=1, optimizer=SGD(0.1))
    assert modulo(hash_integers(values), 97).tolist() == hash_ids(values, table).tolist()


@pytest.mark.parametrize("size", [1, 2, 1000, 2**31 - 2**28])
def test_modulo(size):
    hashes = mix64(np.arange(1000, dtype=np.uint64))
    assert modulo(hashes, size).tolist() == [value % size for value in hashes.tolist()]


def test_hashes_spread_evenly():
    texts = pa.array([f"{i:08x}" for i in range(100_000)])
    counts = np.bincount(modulo(hash_texts(texts), 100), minlength=100)
    assert abs(counts - 1000).max() < 5 * np.sqrt(1000)


@pytest.mark.skipif(feed.unavailable() is not None, reason=str(feed.unavailable()))
@pytest.mark.parametrize("count", [0, 1, 2, 3, 513, 20_001])
@pytest.mark.parametrize("key", [0, 7, 2**64 - 1])
def test_compiled_code_gives_the_order_of_hashed_counters(count, key):
    by_numpy = np.argsort(mix64(np.arange(count, dtype=np.uint64) ^ np.uint64(key)))
    np.testing.assert_array_equal(feed.shuffled(count, key), by_numpy)


def test_shuffled_is_a_permutation_fixed_for_ever():
    assert shuffled(8, 0, 1).tolist() == SHUFFLED
    order = shuffled(1000, 3, 4, 5)
    assert sorted(order.tolist()) == list(range(1000))
    assert abs(np.corrcoef(order, np.arange(1000))[0, 1]) < 0.1
    assert shuffled(1000, 3, 4, 6).tolist() != order.tolist()
    assert shuffled(0, 1).tolist() == []


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_hash_table_finds_all_and_only_its_keys(count):
    keys = mix64(np.arange(count, dtype=np.uint64))
    table = HashTable(keys)
    assert table.find(keys[::-1].copy()).tolist() == list(range(count))[::-1]
    assert (table.find(mix64(np.arange(count, 2 * count, dtype=np.uint64))) == -1).all()


def test_hash_table_with_colliding_slots():
    keys = np.arange(1, 40, dtype=np.uint64) << np.uint64(32)  # all want the same slot
    table = HashTable(keys)
    assert table.find(keys).tolist() == list(range(39))
    assert table.find(np.array([0, 50 << 32], np.uint64)).tolist() == [-1, -1]
