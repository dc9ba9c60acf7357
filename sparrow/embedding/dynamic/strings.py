"""Strings as ids: each by its fixed 64-bit hash, the one of `sparrow.data.hashing.hash_texts`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from sparrow.embedding.batches.ragged import Ragged
from sparrow.kernels.ids import mix64_of


def hash_strings(given: Any) -> Any:
    """Return an input with 64-bit integers instead of strings; one without strings is returned unchanged.

    >>> hash_strings(["", "68fd1e64"]).tolist() == [0xe220a8397b1dcdaf, 0xafd2ea734b8e1a17]
    True
    """
    if isinstance(given, Ragged):
        return dataclasses.replace(given, values=hash_strings(given.values))
    if type(given).__module__.startswith("pyarrow"):
        return _hash_arrow(given)
    if isinstance(given, list | tuple):
        if any(isinstance(bag, list | tuple) for bag in given):
            return [hash_strings(bag) for bag in given]
        if not any(isinstance(item, str | bytes) for item in given):
            return given
        given = np.array(given, object)
    if isinstance(given, np.ndarray) and given.dtype.kind in "USO" and all(map(_is_string, given.reshape(-1))):
        return np.array([_hash(item) for item in given.reshape(-1)], np.uint64).reshape(given.shape)
    return given


def _is_string(item: Any) -> bool:
    return isinstance(item, str | bytes)


def _hash(text: str | bytes) -> int:
    data = text.encode() if isinstance(text, str) else bytes(text)
    made = mix64_of(len(data))
    for start in range(0, len(data), 8):
        made = mix64_of(made ^ int.from_bytes(data[start : start + 8], "little"))
    return made


def _hash_arrow(given: Any) -> Any:
    import pyarrow as pa

    if isinstance(given, pa.ChunkedArray):
        given = given.combine_chunks()
    kind = given.type
    if pa.types.is_dictionary(kind):
        given, kind = given.dictionary_decode(), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array([None if item is None else _hash(item) for item in given.to_pylist()], pa.uint64())
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if is_list and (pa.types.is_string(kind.value_type) or pa.types.is_large_string(kind.value_type)):
        bags = [None if bag is None else [_hash(item) for item in bag] for bag in given.to_pylist()]
        return pa.array(bags, pa.list_(pa.uint64()))
    return given
