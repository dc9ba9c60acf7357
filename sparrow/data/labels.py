"""Labels, the labels that losses take, sample weights and keys: the columns that are not inputs of the model."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.data.errors import Problems
from sparrow.data.keys import hashed
from sparrow.data.values import Parsed, element_type, integers, is_compiled, is_list, is_number, is_text, numbers, plain
from sparrow.kernels.feed import Step, steps


@dataclasses.dataclass(frozen=True)
class Label:
    """A number to predict; missing ones are malformed rows.

    >>> import pyarrow as pa
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
    at_least: float | None = None
    bitmask: int | None = None

    def __post_init__(self) -> None:
        fields.string("label: name", self.name)
        if self.column is not None:
            fields.string(f"label '{self.name}': column", self.column)
        if self.at_least is not None:
            fields.number(f"label '{self.name}': at_least", self.at_least)
        if self.bitmask is not None:
            fields.integer(f"label '{self.name}': bitmask", self.bitmask)
            if self.at_least is not None:
                raise ValueError(f"label '{self.name}': at_least and bitmask exclude each other; keep one")

    @property
    def source_column(self) -> str:
        return self.column or self.name

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        """Return the compiled conversion; None: there is none for a column of this type."""
        step = number_step(self.source_column, kinds) if self.bitmask is None else None
        return None if step is None else dataclasses.replace(step, limit=self.at_least)

    def refuse(self, kind: Any) -> str | None:
        """Return the sentence on a column whose Arrow type cannot be read; None: it can."""
        return refuse_single("the column", kind)

    def convert(self, columns: Any, problems: Problems) -> Any:
        """(batch,) float32; `Ragged` where a row holds a list."""
        x = required_numbers(columns, self.source_column, f"label '{self.name}'", problems)
        if self.bitmask is not None:
            return self._has_bit(x, problems).astype(np.float32)
        return (x if self.at_least is None else x >= self.at_least).astype(np.float32)

    def _has_bit(self, x: npt.NDArray[np.float64], problems: Problems) -> npt.NDArray[np.bool_]:
        bad = ~np.isfinite(x) | (x != np.floor(x)) | (x < 0) | (x >= 2**53)
        at = np.flatnonzero(bad if problems.rows is None else bad & ~problems.rows)
        problems.add(
            self.source_column,
            at,
            lambda i: f"label '{self.name}' reads bits of integers from 0 to 2**53, got {x[at[i]]:g}",
        )
        found: npt.NDArray[np.bool_] = np.where(bad, 0, x).astype(np.int64) & (self.bitmask or 0) != 0
        return found


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
    _refuse(column, parsed, "the key", problems)
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
    element = element_type(kind)
    is_single = not is_list(kind) and (is_number(element) or is_text(element))
    return None if is_single else f"{what} needs one number per row, it holds {kind}"


def required_numbers(columns: Any, column: str, what: str, problems: Problems) -> npt.NDArray[np.float64]:
    """Return one number per row; a missing one is a problem."""
    parsed = numbers(plain(columns.column(column)))
    _refuse(column, parsed, what, problems)
    values: npt.NDArray[np.float64] = parsed.values
    return values


def _refuse(column: str, parsed: Parsed, what: str, problems: Problems) -> None:
    if parsed.missing is not None:
        problems.add(
            column,
            np.flatnonzero(parsed.missing),
            lambda i: f"{what} has no value; remove the row, or set data.bad_rows to skip",
        )
    if parsed.bad is not None:
        at, why = np.flatnonzero(parsed.bad), parsed.why
        problems.add(column, at, lambda i: why(int(at[i])))


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

    def _outside(self, labels: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
        wrong: npt.NDArray[np.bool_] = ~((labels >= 0) & (labels <= self.most))
        return wrong | (labels != np.floor(labels)) if self.integers else wrong

    def refused(self, labels: npt.NDArray[np.float32], columns: Any) -> npt.NDArray[np.bool_]:
        """Return the mask of the rows whose labels the losses do not take."""
        wrong = self._outside(labels)
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
class CheckedLabel(Label):
    """A label of tasks whose losses take a certain range of labels.

    >>> import pyarrow as pa
    >>> label = CheckedLabel("clicked", checks=(LabelCheck("binary_cross_entropy of the task 'click'", most=1.0),))
    >>> problems = Problems(3)
    >>> label.convert(pa.RecordBatch.from_pydict({"clicked": [0.0, 1.0, 2.0]}), problems).tolist()
    [0.0, 1.0, 2.0]
    >>> problems.first
    (2, 'clicked', "binary_cross_entropy of the task 'click' takes numbers from 0 to 1 as labels, got 2")

    Attributes:
      checks: one per task and loss.
    """

    checks: tuple[LabelCheck, ...] = ()

    def convert(self, columns: Any, problems: Problems) -> npt.NDArray[np.float32]:
        """(batch,) float32."""
        labels: npt.NDArray[np.float32] = super().convert(columns, problems)
        refuse_labels(self.source_column, self.checks, labels, columns, problems)
        return labels


def refuse_labels(
    column: str, checks: Iterable[LabelCheck], labels: npt.NDArray[np.float32], columns: Any, problems: Problems
) -> None:
    """Add the labels that the checks do not take to the problems, except where there are problems already."""
    for check in checks:
        wrong = check.refused(labels, columns)
        if problems.rows is not None:
            wrong &= ~problems.rows  # such as labels that are missing, or not numbers
        problems.add(column, np.flatnonzero(wrong), functools.partial(_why, check, labels[wrong]))


def _why(check: LabelCheck, wrong: npt.NDArray[np.float32], i: int) -> str:
    return f"{check.user} takes {check.wanted} as labels, got {wrong[i]:g}"
