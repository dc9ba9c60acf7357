"""Strings as ids: each stands for its 64-bit hash."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from sparrow.embedding.batches.ragged import Ragged
from sparrow.kernels.ids import U64
from sparrow.kernels.ids import mix64_of_numpy as mix64


def hash_texts(texts: Any) -> U64:
    """Hash an Arrow array of strings (or binary), the same on every platform; a missing one hashes like the empty one.

    Trained tables depend on it: a change would send every id to another row.

    With ``n`` the number of UTF-8 bytes, and ``w_k`` the k-th 8 bytes as a little-endian number, padded with zeros::

        h = mix64(n);  for k = 0 .. ceil(n / 8) - 1:  h = mix64(h ^ w_k)

    >>> import pyarrow as pa
    >>> [hex(value) for value in hash_texts(pa.array(["", "68fd1e64", "a longer text"])).tolist()]
    ['0xe220a8397b1dcdaf', '0xafd2ea734b8e1a17', '0xf66fb4434266e58f']
    """
    offset_type = np.int64 if str(texts.type).startswith("large") else np.int32
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


def hash_strings(given: Any) -> Any:
    """Return an input with 64-bit integers instead of strings, each its hash by `hash_texts`.

    >>> hash_strings(["", "68fd1e64"]).tolist() == [0xe220a8397b1dcdaf, 0xafd2ea734b8e1a17]
    True
    """
    import pyarrow as pa

    if isinstance(given, Ragged):
        return dataclasses.replace(given, values=hash_strings(given.values))
    if isinstance(given, np.ndarray) and given.dtype.kind in "USO":
        texts = given.reshape(-1).tolist()
        return hash_texts(pa.array(texts)).reshape(given.shape) if _are_strings(texts) else given
    if isinstance(given, list | tuple) and given and _are_strings(given):
        return hash_texts(pa.array(given))
    if isinstance(given, list | tuple) and any(map(_has_string, given)):
        with contextlib.suppress(pa.ArrowException):  # strings and numbers: `read_input` refuses them
            given = pa.array(given)
    return _hash_arrow(given) if isinstance(given, pa.Array | pa.ChunkedArray) else given


def _are_strings(items: Iterable[Any]) -> bool:
    return all(isinstance(item, str | bytes) for item in items)


def _has_string(item: Any) -> bool:
    return isinstance(item, str | bytes) or (isinstance(item, list | tuple) and any(map(_has_string, item)))


def _hash_arrow(given: Any) -> Any:
    import pyarrow as pa

    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    if pa.types.is_dictionary(given.type):
        given = given.dictionary_decode()
    if _is_text(given.type):
        return pa.array(hash_texts(given), mask=given.is_null().to_numpy(zero_copy_only=False))
    is_list = pa.types.is_list(given.type) or pa.types.is_large_list(given.type)
    if is_list and _is_text(given.type.value_type):
        offsets = np.cumsum([0, *given.value_lengths().fill_null(0).to_numpy()])
        return pa.LargeListArray.from_arrays(offsets, _hash_arrow(given.flatten()))
    return given


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "binary", "large_binary")
