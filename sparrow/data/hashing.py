"""Fixed hashes: the same 64 bits for the same integer or string on every platform, in every version.

Trained tables depend on these functions: a change would send every id to another row. A test checks known values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.embedding import U64, hash_integers, mix64
from sparrow.kernels import feed

__all__ = ["U64", "hash_integers", "hash_texts", "mix64", "modulo", "shuffled"]


def hash_texts(texts: Any) -> U64:
    """Hash an Arrow array of strings (or binary); a missing string hashes like the empty one.

    With ``n`` the number of UTF-8 bytes, and ``w_k`` the k-th 8 bytes as a little-endian number, padded with zeros::

        h = mix64(n);  for k = 0 .. ceil(n / 8) - 1:  h = mix64(h ^ w_k)

    >>> [hex(value) for value in hash_texts(pa.array(["", "68fd1e64", "a longer text"])).tolist()]
    ['0xe220a8397b1dcdaf', '0xafd2ea734b8e1a17', '0xf66fb4434266e58f']
    """
    offset_type = np.int64 if pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type) else np.int32
    count = len(texts)
    if count == 0:
        return np.zeros(0, np.uint64)
    _, offset_buffer, data = texts.buffers()
    # A buffer from a stranger may hold more bytes, and half a number at its end.
    offsets = np.frombuffer(offset_buffer, offset_type, texts.offset + count + 1)[texts.offset :].astype(np.int64)
    lengths = np.diff(offsets)
    if texts.null_count:
        lengths = np.where(texts.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    starts = offsets[:-1] - offsets[0]
    size = int(offsets[-1] - offsets[0])
    padded = np.zeros(size + 8, np.uint8)  # so that the last string can be read in complete words
    if size:
        padded[:size] = np.frombuffer(data, np.uint8, size, int(offsets[0]))
    words = np.ndarray((size + 1,), "<u8", padded, strides=(1,))  # the 8 bytes that start at every byte
    h = mix64(lengths.view(np.uint64))
    longest = int(lengths.max())
    shortest = int(lengths.min())
    for first in range(0, longest, 8):
        if first + 8 <= shortest:  # a complete word of every string
            h = mix64(h ^ words[starts + first])
            continue
        rows = np.flatnonzero(lengths > first)
        left = np.minimum(lengths[rows] - first, 8).astype(np.uint64)
        word = (
            words[starts[rows] + first]
            << (np.uint64(64) - left * np.uint64(8))
            >> (np.uint64(64) - left * np.uint64(8))
        )
        h[rows] = mix64(h[rows] ^ word)
    return h


def modulo(hashes: U64, size: int) -> npt.NDArray[np.int32]:
    """Return ``hashes % size`` as row numbers. NumPy divides by a constant much faster than it takes remainders."""
    quotient = hashes // np.uint64(size)
    quotient *= np.uint64(size)
    return (hashes - quotient).astype(np.int32)


def shuffled(count: int, *seeds: int) -> npt.NDArray[np.int64]:
    """Return a permutation of ``range(count)`` that depends on ``seeds`` alone: the order of hashed counters.

    >>> shuffled(5, 0, 1).tolist() == shuffled(5, 0, 1).tolist()
    True
    """
    key = np.zeros(1, np.uint64)
    for seed in seeds:
        key = mix64(key ^ np.array([seed], np.int64).view(np.uint64))
    order = feed.shuffled(count, int(key[0]))
    if order is not None:
        return order
    return np.argsort(mix64(np.arange(count, dtype=np.uint64) ^ key))  # no two are equal: any sort gives this order
