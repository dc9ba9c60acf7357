"""`LabelCheck`: the labels that the losses of a task take; others are refused with row and value."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.data.errors import Problems
from sparrow.data.labels import Label, required_numbers


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
