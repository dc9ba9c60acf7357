"""Labels, the labels that losses take, sample weights and keys: the columns that are not inputs of the model."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.errors import Problems
from sparrow.data.features.base import truncated
from sparrow.data.hashing import hashed
from sparrow.data.values import (
    element_type,
    flatten,
    holds_values,
    integers,
    is_compiled,
    is_list,
    is_text,
    numbers,
    plain,
)
from sparrow.embedding import Ragged
from sparrow.kernels.feed import Step, steps

CANDIDATES: Final = "count/candidates"
"""The output of a model that ranks several candidates of an example: their number, ``(batch,)`` integers.

The outputs of its tasks are then ``(batch, most candidates)``, with a last axis of classes where there are several;
labels have that shape too, and elements behind an example's number do not count."""
Floats = npt.NDArray[np.float32]
_ABSENT: Final = "has no value; remove the row, or set data.bad_rows to skip"


@dataclasses.dataclass(frozen=True)
class LabelCheck:
    """The range of a task's labels. Rows that do not count in the task are not checked.

    Attributes:
      user: the loss and the task, for the error.
      most: the largest label; infinity: no bound.
      integers: whether labels are integers, such as classes; else all numbers from 0 on.
      weight: the column of sample weights; rows of weight 0 do not count.
      space: a label; rows where it is not above 0 do not count.
    """

    user: str
    most: float = math.inf
    integers: bool = False
    weight: str | None = None
    space: Label | None = None

    def refused(self, labels: npt.NDArray[np.float32], columns: Any) -> npt.NDArray[np.bool_]:
        """Return the mask of the rows whose labels the losses do not take."""
        wrong: npt.NDArray[np.bool_] = ~((labels >= 0) & (labels <= self.most))
        if self.integers:
            wrong |= labels != np.floor(labels)
        if not wrong.any():
            return wrong
        elsewhere = Problems(len(labels))  # the weight and the space report their own problems
        if self.weight is not None:
            wrong &= required_numbers(columns, self.weight, "the sample weight", elsewhere) != 0
        if self.space is not None:
            wrong &= self.space.convert(columns, elsewhere) > 0
        return wrong

    @property
    def wanted(self) -> str:
        """The labels that are allowed, in words."""
        numbers = "integers" if self.integers else "numbers"
        return f"{numbers} from 0 on" if math.isinf(self.most) else f"{numbers} from 0 to {self.most:g}"


@dataclasses.dataclass(frozen=True)
class Label:
    """A number to predict; missing ones are malformed rows.

    >>> liked = Label("liked", column="rating", at_least=4.0)
    >>> liked.convert(pa.RecordBatch.from_pydict({"rating": ["3", "4.5"]}), Problems(2)).tolist()
    [0.0, 1.0]

    Attributes:
      name: the name of the label.
      column: its column; None: the column of the label's name.
      at_least: the label is 1 where the column is at least this, else 0; None: the number itself.
      bitmask: the label is 1 where the column, an integer, has one of these bits, else 0; None: the number itself.
    """

    name: str
    column: str | None = None
    at_least: fields.Finite | None = None
    bitmask: fields.Count | None = None

    def __post_init__(self) -> None:
        fields.string("label: name", self.name)
        if self.column is not None:
            fields.string(f"label '{self.name}': column", self.column)
        fields.check(self, f"label '{self.name}': ")
        if self.bitmask is not None and self.at_least is not None:
            raise ValueError(f"label '{self.name}': at_least and bitmask exclude each other; keep one")

    @property
    def source_column(self) -> str:
        return self.column or self.name

    @property
    def checks(self) -> tuple[LabelCheck, ...]:
        """The labels that losses take, one check per task and loss."""
        return ()

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        """Return the compiled conversion; None: there is none for a column of this type."""
        step = number_step(self.source_column, kinds) if self.bitmask is None else None
        return None if step is None else dataclasses.replace(step, limit=self.at_least)

    def refuse(self, kind: Any) -> str | None:
        return refuse_single("the column", kind)

    def convert(self, columns: Any, problems: Problems) -> Any:
        """Return (batch,) float32; `Ragged` where a row holds a list."""
        values = self._read(columns, problems)
        self._refuse_values(values, columns, problems)
        return values

    def _refuse_values(self, values: Floats, columns: Any, problems: Problems) -> None:
        """Add the labels that the checks do not take to the problems, except where there are problems already."""
        for check in self.checks:
            wrong = check.refused(values, columns)
            if problems.rows is not None:
                wrong &= ~problems.rows  # such as labels that are missing, or not numbers
            words = f"{check.user} takes {check.wanted} as labels, got"
            problems.add(
                self.source_column,
                np.flatnonzero(wrong),
                lambda i, words=words, own=values[wrong]: f"{words} {own[i]:g}",  # type: ignore[misc]
            )

    def _read(self, columns: Any, problems: Problems) -> Floats:
        x: Any = required_numbers(columns, self.source_column, f"label '{self.name}'", problems)
        if self.bitmask is not None:
            x = self._has_bit(x, problems)
        return np.asarray(x if self.at_least is None else x >= self.at_least, np.float32)

    def _has_bit(self, x: npt.NDArray[np.float64], problems: Problems) -> npt.NDArray[np.bool_]:
        bad = ~np.isfinite(x) | (x != np.floor(x)) | (x < 0) | (x >= 2**53)
        at = np.flatnonzero(bad if problems.rows is None else bad & ~problems.rows)
        problems.add(
            self.source_column,
            at,
            lambda i: f"label '{self.name}' reads bits of integers from 0 to 2**53, got {x[at[i]]:g}",
        )
        return np.asarray(np.where(bad, 0, x).astype(np.int64) & (self.bitmask or 0) != 0)


@dataclasses.dataclass(frozen=True)
class CheckedLabel(Label):
    """A label of tasks whose losses take a certain range of labels.

    >>> clicked = CheckedLabel("clicked", checks=(LabelCheck("binary_cross_entropy of the task 'click'", most=1.0),))
    >>> problems = Problems(3)
    >>> clicked.convert(pa.RecordBatch.from_pydict({"clicked": [0.0, 1.0, 2.0]}), problems).tolist()
    [0.0, 1.0, 2.0]
    >>> problems.first
    (2, 'clicked', "binary_cross_entropy of the task 'click' takes numbers from 0 to 1 as labels, got 2")
    """

    checks: tuple[LabelCheck, ...] = ()


@dataclasses.dataclass(frozen=True)
class CandidateLabel(CheckedLabel):
    """A number to predict for each candidate, cut as the sequence that holds the candidates is.

    >>> label = CandidateLabel("clicked", max_length=2, keep="first")
    >>> rows = pa.RecordBatch.from_pydict({"clicked": [[0, 1, 1], [1]]})
    >>> label.convert(rows, Problems(2)).to_lists()
    [[0.0, 1.0], [1.0]]

    Attributes:
      name, column, at_least, bitmask, checks: as in `CheckedLabel`, of each number.
      max_length: the most candidates of a row that are kept.
      keep: the candidates of a longer row that are kept: "last" or "first".
      separator: between the numbers of a text.
    """

    _: dataclasses.KW_ONLY
    max_length: int
    keep: Literal["last", "first"] = "last"
    separator: str | None = None

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        return None

    def refuse(self, kind: Any) -> str | None:
        is_split = is_text(kind) and self.separator is not None
        if is_split or (is_list(kind) and holds_values(kind)):
            return None
        text = "" if self.separator is None else f", or a text with {self.separator!r} between"
        return (
            f"the label '{self.name}' needs a list of numbers, one for each candidate of the example{text}; the column "
            f"holds {kind}"
        )

    def convert(self, columns: Any, problems: Problems) -> Ragged:
        flat = flatten(plain(columns.column(self.source_column)), self.separator)
        assert flat.offsets is not None  # or the column was refused
        inner, rows = Problems(len(flat.entries)), flat.rows
        entries = pa.RecordBatch.from_arrays([flat.entries], [self.source_column])
        values = self._read(entries, inner)
        self._refuse_values(values, _OfElements(columns, rows), inner)
        problems.add_inner(inner, rows)
        return truncated(values, flat.offsets, self.max_length, self.keep)


@dataclasses.dataclass(frozen=True)
class _OfElements:
    """Columns of rows, as columns of the elements of a list: those of the elements' rows, or their own lists."""

    columns: Any
    rows: npt.NDArray[np.int64]

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> Any:
        held = self.columns.column(name)
        if not is_list(held.type):
            return held.take(pa.array(self.rows))
        flat = flatten(plain(held), None)
        if len(flat.entries) == len(self.rows):
            return flat.entries
        return pa.nulls(len(self.rows), flat.entries.type)  # of other lengths, which is an error of its own


def sample_weights(columns: Any, column: str, problems: Problems) -> npt.NDArray[np.float32]:
    """Return the sample weights: (batch,) float32, none below 0."""
    x = required_numbers(columns, column, "the sample weight", problems)
    negative = np.flatnonzero(x < 0)
    problems.add(column, negative, lambda i: f"a sample weight must not be negative, got {x[negative[i]]:g}")
    return x.astype(np.float32)


def keys(columns: Any, column: str, problems: Problems, as_integer: bool = False) -> npt.NDArray[np.int64]:
    """Return the keys: (batch,) int64, integers by value, strings by their hash; missing ones are malformed rows.

    ``as_integer``: strings hold integers.
    """
    entries = columns.column(column)
    is_words = is_text(element_type(entries.type)) and not as_integer
    parsed = hashed(entries) if is_words else integers(plain(entries))
    parsed.report(column, problems, missing=f"the key {_ABSENT}")
    values: npt.NDArray[Any] = parsed.values
    return values.view(np.int64) if values.dtype == np.uint64 else values.astype(np.int64)


def number_step(column: str, kinds: Mapping[str, Any], is_weight: bool = False) -> Step | None:
    """Return the compiled conversion of `required_numbers`, or of `sample_weights`."""
    if not is_compiled(kinds[column]):
        return None
    return Step(steps.NUMBERS, (column,), is_required=True, is_weight=is_weight)


def key_step(column: str, kinds: Mapping[str, Any], as_integer: bool = False) -> Step | None:
    """Return the compiled conversion of `keys`."""
    return Step(steps.KEY, (column,), as_integer=as_integer) if is_compiled(kinds[column]) else None


def refuse_single(what: str, kind: Any) -> str | None:
    """Return the sentence on a column whose Arrow type ``kind`` is not one number or string per row; None: it is."""
    return None if holds_values(kind) and not is_list(kind) else f"{what} needs one number per row, it holds {kind}"


def required_numbers(columns: Any, column: str, what: str, problems: Problems) -> npt.NDArray[np.float64]:
    """Return one number per row; a missing one is a problem."""
    parsed = numbers(plain(columns.column(column)))
    parsed.report(column, problems, missing=f"{what} {_ABSENT}")
    return np.asarray(parsed.values)
