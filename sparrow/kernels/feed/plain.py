"""Batches that the filler writes: their description, and the plain statement of the filler in NumPy.

Compiled code writes the same, where there is a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

COMBINERS: Final = ("sum", "mean", "sqrtn")


class Field(NamedTuple):
    """A feature of a stack. The fields are those of ``Field`` in filling.h, which describes them."""

    word: int
    bag: int
    start: int
    limit: int
    ignores: bool
    combiner: str
    places: int = 0
    there: int = 0


class Column(NamedTuple):
    """The ids of one feature by themselves, instead of in rows.

    Attributes:
      ids: (N,) int32 or int64, of any stride.
      offsets: (bags + 1,) int64, from 0 to N; None: one id per bag, and none in bags behind the last id.
      weights: (N,) float32; None: all 1.
      there: (N,) bool, False where an id is missing; None: none is.
    """

    ids: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64] | None = None
    weights: npt.NDArray[np.float32] | None = None
    there: npt.NDArray[np.bool_] | None = None


class Packed(NamedTuple):
    """The lookups of a stack, or of a group of its features: as ``Packed`` in filling.h, which describes the fields.

    For dynamic tables, whose ``raw`` is the place of raw 64-bit ids, the ``start`` of a field is the number of its
    table, its ``limit`` 1, and the ``word`` of a single id that of its lower half, behind which the upper one stands.
    """

    fields: Sequence[Field]
    spare: int
    examples: int
    capacity: int
    ids: int
    bags: int = -1
    offsets: int = -1
    gains: int = -1
    first: int = 0
    raw: int = -1
    follows: bool = False


class Rows(NamedTuple):
    """Rows of a block that go to a batch.

    Attributes:
      words: (rows, width).
      order: the rows to take; None: ``begin`` and the following.
      begin, size: the part of ``order``, or of the rows.
      tail, starts: the bags of all rows.
    """

    words: npt.NDArray[np.int32]
    order: npt.NDArray[np.int64] | None
    begin: int
    size: int
    tail: npt.NDArray[np.int32] | None
    starts: npt.NDArray[np.int64] | None


Words = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


class Entries(NamedTuple):
    """The entries of one field: their rows, raw ids, gains (None: all 1), and the number of them in each bag."""

    rows: Words
    raw: Words
    gains: Floats | None
    lengths: npt.NDArray[np.int64]


def fill_columns(stacks: Sequence[Packed], columns: Sequence[Column], batch: Words) -> bool:
    """Write the stacks of one batch from columns, one for each field, stack after stack; False: something is wrong."""
    entry = bag = at = 0
    for number, stack in enumerate(stacks):
        fields = list(zip(stack.fields, columns[at : at + len(stack.fields)], strict=True))
        at += len(fields)
        found = [_entries(stack, field, column) for field, column in fields]
        held = [own for own in found if own is not None]
        if len(held) < len(found):
            return False
        entry, bag = (entry, bag) if stack.follows else (0, 0)
        lengths = np.stack([own.lengths for own in held], axis=1)  # (examples, fields)
        starts = entry + (np.cumsum(lengths.reshape(-1)).reshape(lengths.shape) - lengths)
        end = entry + int(lengths.sum())
        if stack.capacity >= 0 and end > stack.capacity:
            return False
        ids, raw = batch[stack.ids :], batch[stack.raw :]
        gains = batch[stack.gains :].view(np.float32)
        for i, own in enumerate(held):
            before = np.cumsum(own.lengths) - own.lengths
            to = np.repeat(starts[:, i] - before, own.lengths) + np.arange(len(own.rows))
            ids[to] = own.rows
            if stack.raw >= 0:
                raw[2 * to], raw[2 * to + 1] = own.raw[:, 0], own.raw[:, 1]
            if stack.gains >= 0:
                gains[to] = 1.0 if own.gains is None else own.gains
        if stack.capacity < 0:
            continue
        bags, count = batch[stack.bags :], lengths.size
        bags[entry:end] = stack.first + bag + np.repeat(np.arange(count), lengths.reshape(-1))
        offsets = batch[stack.offsets + bag :]
        offsets[0] = stack.first + entry
        offsets[1 : count + 1] = stack.first + entry + np.cumsum(lengths.reshape(-1))
        entry, bag = end, bag + count
        if number + 1 == len(stacks) or not stacks[number + 1].follows:
            ids[entry : stack.capacity] = stack.spare
            bags[entry : stack.capacity] = stack.first + bag
            if stack.gains >= 0:
                gains[entry : stack.capacity] = 0.0
            if stack.raw >= 0:
                raw[2 * entry : 2 * stack.capacity] = 0
    return True


def _entries(stack: Packed, field: Field, column: Column) -> Entries | None:
    ids, count = column.ids.astype(np.int64), len(column.ids)
    there = np.ones(count, np.bool_) if column.there is None else column.there.astype(np.bool_)
    if column.offsets is None:  # one id each, and none behind the last
        missing = stack.examples - count
        ids, there = (
            np.concatenate([ids, np.zeros(missing, np.int64)]),
            np.concatenate([there, np.zeros(missing, bool)]),
        )
        lengths: npt.NDArray[np.int64] = np.ones(stack.examples, np.int64)
    else:
        lengths = np.diff(column.offsets)
        if (lengths < 0).any():
            return None
    if column.weights is not None and not np.isfinite(column.weights).all():
        return None
    is_raw = stack.raw >= 0
    inside = there if is_raw else there & (ids.view(np.uint64) < field.limit)
    if not field.ignores and (inside != there).any():
        return None
    rows = np.where(inside, field.start if is_raw else ids + field.start, stack.spare).astype(np.int32)
    raw = np.where(there, ids, 0).view(np.int32).reshape(-1, 2)
    combiner = "sum" if column.offsets is None else field.combiner
    return Entries(rows, raw, gains_of(combiner, lengths, column.weights, None if inside.all() else inside), lengths)


def gains_of(
    combiner: str, lengths: npt.NDArray[Any], weights: Floats | None, valid: npt.NDArray[np.bool_] | None
) -> Floats | None:
    """Return the factor of each looked-up row: its weight, times the combiner's factor; None: all are 1.

    Ids that are not ``valid`` (None: all are) count for nothing.
    """
    if combiner == "sum":  # an ignored id reads zeros for any gain
        return weights
    if valid is not None:
        weights = valid.astype(np.float32) if weights is None else weights * valid
    bags = np.repeat(np.arange(len(lengths)), lengths)
    if weights is None:
        total = lengths.astype(np.float64)  # every weight is 1, and so is its square
        weights = np.ones(len(bags), np.float32)
    else:
        exact = weights.astype(np.float64)
        summand = exact if combiner == "mean" else exact * exact
        total = np.bincount(bags, summand, minlength=len(lengths)).astype(np.float64)
    divisor = total if combiner == "mean" else np.sqrt(total)
    factor = np.divide(1.0, divisor, out=np.zeros_like(divisor), where=divisor != 0)
    return (weights * factor[bags]).astype(np.float32)
