"""`Step`: one conversion as the compiled code takes it, and `Steps`: several of them, with the memory they point to."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sparrow.kernels.feed.loading import struct_fields

IDS, NUMBERS, BUCKETS, CROSS, KEY = range(5)
NUMBERED, HASHED, VOCABULARY, RAW = range(4)
NO_ROW: Final = -1
BAD_ROW: Final = -3
"""The row of an unknown id that makes a row malformed; as the row of a missing id: the reference must look."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One conversion. The fields are the ones of ``Step`` in step.h, which describes them."""

    kind: int
    columns: tuple[str, ...]
    mapping: int = 0
    size: int = 0
    unknown: int = NO_ROW
    default_row: int = NO_ROW
    raw_default: int = 0
    there: int = 0
    as_integer: bool = False
    table: tuple[npt.NDArray[np.uint64], npt.NDArray[np.int32]] | None = None
    separator: str | None = None
    is_weighted: bool = False
    weight_separator: str | None = None
    max_length: int = 0
    keep_last: bool = False
    keeps_missing: bool = False
    dim: int = 1
    fill: float = 0.0
    is_required: bool = False
    is_weight: bool = False
    limit: float | None = None
    boundaries: tuple[float, ...] = ()
    is_transformed: bool = False  # whether NumPy transforms its numbers
    most: float | None = None  # the largest label; None: any label is good
    are_integers: bool = False
    known: npt.NDArray[np.float32] | None = None  # its results for `fill`, and for 0, 1, 2, ...


class _Step(ctypes.Structure):
    _fields_ = struct_fields(
        "n kind p columns n num_columns word is_ragged mapping size unknown default_row raw_default there as_integer "
        "p keys positions u mask t separator n separator_size is_weighted t weight_separator n weight_separator_size "
        "max_length keep_last keeps_missing dim d fill n is_required is_weight has_limit d limit p boundaries "
        "n num_boundaries p known n num_known has_range d most n are_integers"
    )


_COPIED: Final = {name for name, kind in _Step._fields_ if kind is ctypes.c_int64} & {
    field.name for field in dataclasses.fields(Step)
}
"""Numbers that are the same in both."""


class Steps:
    """Steps for record batches whose columns have one order. Holds the arrays that they point to."""

    def __init__(self, steps: Sequence[tuple[Step, int, bool]], columns: Mapping[str, int]) -> None:
        """Take the steps, each with a word of the row, and whether it is ragged.

        The word is where its values begin, or the one of its bags' length. Ragged steps come in the order of the bags
        in a row's tail.
        """
        self.steps = [step for step, _, _ in steps]
        self.has_bags = any(is_ragged for _, _, is_ragged in steps)
        sizes = [step.dim if step.is_transformed else 0 for step in self.steps]
        self.transformed = np.cumsum([0, *sizes])  # the numbers of a row that NumPy transforms, before each step
        self._held: list[Any] = []
        self.array = (_Step * max(len(steps), 1))(*(self._raw(*step, columns) for step in steps))

    def _raw(self, step: Step, word: int, is_ragged: bool, columns: Mapping[str, int]) -> _Step:
        keys, positions = step.table or (np.zeros(1, np.uint64), np.zeros(1, np.int32))
        separators = [None if text is None else text.encode() for text in (step.separator, step.weight_separator)]
        self._held += separators
        return _Step(
            **{name: int(getattr(step, name)) for name in _COPIED},
            columns=self._address(np.array([columns[column] for column in step.columns], np.int64)),
            num_columns=len(step.columns),
            word=word,
            is_ragged=is_ragged,
            keys=self._address(keys),
            positions=self._address(positions),
            mask=len(keys) - 1,
            separator=separators[0],
            separator_size=len(separators[0] or b""),
            weight_separator=separators[1],
            weight_separator_size=len(separators[1] or b""),
            fill=step.fill,
            has_limit=step.limit is not None,
            limit=step.limit or 0.0,
            boundaries=self._address(np.array(step.boundaries, np.float64)),
            num_boundaries=len(step.boundaries),
            known=None if step.known is None else self._address(step.known),
            num_known=0 if step.known is None else len(step.known) - 1,
            has_range=step.most is not None,
            most=step.most or 0.0,
        )

    def _address(self, array: npt.NDArray[Any]) -> int:
        self._held.append(array)
        return array.ctypes.data
