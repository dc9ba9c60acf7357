"""From the entries of any column to 64-bit keys, for hashing, vocabularies, crosses and group keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.hashing import hash_integers, hash_texts
from sparrow.data.values import Parsed, integers, is_text


def hashed(entries: Any, as_integer: bool = False) -> Parsed:
    """Return the fixed 64-bit hash of each entry (uint64): integers by value, strings by their UTF-8 bytes.

    An empty string is missing. With ``as_integer``, strings such as "17" hash like the number 17.
    """
    if pa.types.is_dictionary(entries.type):
        return through_dictionary(entries, lambda words: hashed(words, as_integer))
    if is_text(entries.type) and not as_integer:
        keys = hash_texts(entries)
        empty = pc.fill_null(pc.equal(entries, pa.scalar("", entries.type)), True).to_numpy(zero_copy_only=False)
        return Parsed(keys, empty if empty.any() else None)
    parsed = integers(entries)
    return Parsed(hash_integers(parsed.values), parsed.missing, parsed.bad, parsed.why)


def through_dictionary(entries: Any, convert: Any) -> Parsed:
    """Convert the distinct words of a dictionary-coded array only, then spread the result over the entries."""
    words = convert(entries.dictionary)
    indices = entries.indices
    nulls = indices.is_null().to_numpy(zero_copy_only=False) if indices.null_count else None
    at = (indices if nulls is None else indices.fill_null(0)).to_numpy(zero_copy_only=False)
    if len(entries.dictionary) == 0:  # every entry is missing
        return Parsed(np.zeros(len(at), words.values.dtype), np.ones(len(at), np.bool_))
    return Parsed(
        words.values[at],
        _either(nulls, None if words.missing is None else words.missing[at]),
        None if words.bad is None else words.bad[at] if nulls is None else words.bad[at] & ~nulls,
        lambda i: words.why(int(at[i])),
    )


def _either(a: npt.NDArray[np.bool_] | None, b: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
    return b if a is None else a if b is None else a | b
