"""Group keys as numbers: any hashable key becomes 128 bits that are the same in every process, on every machine.

Integers are kept as they are. Everything else is hashed (BLAKE2b): among 1e9 groups the chance that any two share
their bits is below 1e-20. So the state of a grouped metric is numbers only: it sorts fast, travels as bytes, and a
key's owner among ``n`` processes is a matter of arithmetic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_HASHED = 1 << 63  # the top bit of ``high`` marks a hash: it never equals an integer's
_LARGE = 1  # ``high`` of integers in [2**63, 2**64); below, ``high`` is 0
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio


class Keys(NamedTuple):
    """``high`` is None when all of it is 0, as for plain integers: half the memory, one sort less."""

    low: NDArray[np.uint64]
    high: NDArray[np.uint64] | None


def encode(name: str, groups: Any, rows: int) -> Keys:
    """Return the keys of ``rows`` rows; ``name`` is the metric that errors name.

    >>> encode("GroupedAUC", [3, 5], 2)
    Keys(low=array([3, 5], dtype=uint64), high=None)
    >>> bool(encode("GroupedAUC", ["a", 7, ("a", 7)], 3).high[1])    # only hashes and huge integers have a high part
    False
    """
    keys = _as_vector(groups)
    if keys.shape != (rows,):
        raise ValueError(f"{name}.update: groups have shape {keys.shape}; they must be ({rows},), one key per row")
    if keys.dtype.kind in "bi":
        return Keys(keys.astype(np.int64).view(np.uint64), None)
    if keys.dtype.kind == "u":
        low = keys.astype(np.uint64)
        large = low >= np.uint64(1 << 63)
        return Keys(low, large.astype(np.uint64) * np.uint64(_LARGE) if large.any() else None)
    listed = keys.tolist()  # Python's own str, bytes, float: the same key whatever array it came in
    distinct = {key: index for index, key in enumerate(dict.fromkeys(listed))}
    pairs = np.array([_encode_one(name, key) for key in distinct], np.uint64).reshape(-1, 2)
    both = pairs[np.fromiter(map(distinct.__getitem__, listed), np.int64, rows)]
    low, high = np.ascontiguousarray(both.T)
    return Keys(low, high if high.any() else None)


def owner(low: NDArray[np.uint64], high: NDArray[np.uint64] | None, processes: int) -> NDArray[np.int64]:
    """Which of ``processes`` owns each key: stable, and even for consecutive integers too."""
    mixed = low * _MIX  # wraps around: multiplication modulo 2**64
    if high is not None:
        mixed ^= high
    mixed ^= mixed >> np.uint64(32)
    return ((mixed * _MIX) >> np.uint64(33)).astype(np.int64) % processes


def _as_vector(groups: Any) -> NDArray[Any]:
    """Return an array of keys. A list is not handed to NumPy, which would turn [1, "1"] into two equal strings."""
    if not isinstance(groups, list | tuple):
        return np.asarray(groups)
    if all(type(key) is int and -(1 << 63) <= key < 1 << 63 for key in groups):
        return np.array(groups, np.int64)
    return np.fromiter(groups, object, len(groups))


def _encode_one(name: str, key: Hashable) -> tuple[int, int]:
    if isinstance(key, float) and key.is_integer():
        key = int(key)  # 1 and 1.0 are the same key, as in a dict
    if isinstance(key, int) and -(1 << 63) <= key < 1 << 64:
        return key % (1 << 64), _LARGE if key >= 1 << 63 else 0
    digest = hashlib.blake2b(_key_bytes(name, key), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little") | _HASHED


def _key_bytes(name: str, key: Any) -> bytes:
    """Bytes that are equal exactly when the keys are: the type's tag, then the content."""
    if isinstance(key, str):
        return b"s" + key.encode("utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, np.generic):
        return _key_bytes(name, key.item())
    if isinstance(key, float):
        if key != key:
            raise ValueError(f"{name}.update: a group key is NaN; replace missing keys by a value of their own")
        key = int(key) if key.is_integer() else key
    if isinstance(key, tuple):
        parts = [_key_bytes(name, part) for part in key]
        return b"t" + b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    if isinstance(key, frozenset):
        return b"f" + _key_bytes(name, tuple(sorted(_key_bytes(name, part) for part in key)))
    says_its_value: Any = type(key).__repr__
    if says_its_value is object.__repr__:
        raise TypeError(
            f"{name}.update: a group key is a {type(key).__name__}, whose repr does not show its value; "
            "use numbers, strings, bytes or tuples of them"
        )
    kind = "int" if isinstance(key, int) else f"{type(key).__module__}.{type(key).__qualname__}"
    return b"r" + kind.encode() + b":" + repr(int(key) if isinstance(key, int) else key).encode()
