"""Calling the compiled packing of one stack's lookups."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.ordering import address

COMBINERS: Final = ("sum", "mean", "sqrtn")


class Given(NamedTuple):
    """The ids of one feature.

    Attributes:
      ids: (N,) int32 or int64, of any stride.
      offsets: (bags + 1,) int64; None: one id per bag.
      weights: (N,) float32; None: all 1.
      start: the first row of its table in the stack.
      limit: rows of its table.
      ignores: whether ids outside the table are ignored; if not, they are an error.
      combiner: one of `COMBINERS`.
    """

    ids: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64] | None
    weights: npt.NDArray[np.float32] | None
    start: int
    limit: int
    ignores: bool
    combiner: str


def pack_single(
    library: ctypes.CDLL, features: Sequence[Given], examples: int, spare: int, out: npt.NDArray[np.int32]
) -> bool:
    """Write the rows of features with one id per bag to ``out``, (examples * features,); False: an id is an error."""
    given = _raw(features)
    return bool(
        library.sparrow_feed_pack_single(
            address(given), ctypes.c_int64(len(features)), ctypes.c_int64(examples), ctypes.c_int64(spare), address(out)
        )
    )


def pack_bags(
    library: ctypes.CDLL,
    features: Sequence[Given],
    examples: int,
    spare: int,
    begin: tuple[int, int],
    ids: npt.NDArray[np.int32],
    bags: npt.NDArray[np.int32],
    offsets: npt.NDArray[np.int32],
    gains: npt.NDArray[np.float32] | None,
) -> int:
    """Write the lookups of bags, from the entry and the bag in ``begin`` on. Return the entries written in all.

    Return -1 where an id, a weight or an offset is an error.
    """
    given = _raw(features)
    made: int = library.sparrow_feed_pack_bags(
        address(given),
        *map(ctypes.c_int64, (len(features), examples, spare, *begin, len(ids))),
        address(ids),
        address(bags),
        address(offsets),
        None if gains is None else address(gains),
    )
    return made


def _raw(features: Sequence[Given]) -> Any:
    """Return the features as ``Given`` of pack.cc: nine numbers of 8 bytes each, in one array."""
    fields: list[int] = []
    for given in features:
        size = given.ids.itemsize
        fields += (
            given.ids.__array_interface__["data"][0],
            size == 8,
            given.ids.strides[0] // size,
            0 if given.offsets is None else given.offsets.__array_interface__["data"][0],
            0 if given.weights is None else given.weights.__array_interface__["data"][0],
            given.start,
            given.limit,
            given.ignores,
            COMBINERS.index(given.combiner),
        )
    return np.array(fields, np.int64)
