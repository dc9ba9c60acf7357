"""`CandidateLabel`: a list of numbers per row, one for each candidate of the example."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.errors import Problems
from sparrow.data.features.truncated import truncated
from sparrow.data.labels import Label, LabelCheck, refuse_labels
from sparrow.data.values import element_type, flatten, is_list, is_number, is_text, plain
from sparrow.embedding import Ragged
from sparrow.kernels.feed import Step

CANDIDATES: Final = "count/candidates"
"""The output of a model that ranks several candidates of an example: their number, ``(batch,)`` integers.

The outputs of its tasks are then ``(batch, most candidates)``, with a last axis of classes where there are several;
labels have that shape too, and elements behind an example's number do not count."""


@dataclasses.dataclass(frozen=True)
class CandidateLabel(Label):
    """A number to predict for each candidate, cut as the sequence that holds the candidates is.

    >>> label = CandidateLabel("clicked", max_length=2, keep="first")
    >>> rows = pa.RecordBatch.from_pydict({"clicked": [[0, 1, 1], [1]]})
    >>> label.convert(rows, Problems(2)).to_lists()
    [[0.0, 1.0], [1.0]]

    Attributes:
      name, column, at_least, bitmask: as in `Label`, of each number.
      max_length: the most candidates of a row that are kept.
      keep: the candidates of a longer row that are kept: "last" or "first".
      separator: between the numbers of a text.
      checks: one per task and loss.
    """

    _: dataclasses.KW_ONLY
    max_length: int
    keep: Literal["last", "first"] = "last"
    separator: str | None = None
    checks: tuple[LabelCheck, ...] = ()

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        return None

    def refuse(self, kind: Any) -> str | None:
        element = element_type(kind)
        is_split = is_text(kind) and self.separator is not None
        if is_split or (is_list(kind) and (is_number(element) or is_text(element))):
            return None
        text = "" if self.separator is None else f", or a text with {self.separator!r} between"
        return (
            f"the label '{self.name}' needs a list of numbers, one for each candidate of the example{text}; the column "
            f"holds {kind}"
        )

    def convert(self, columns: Any, problems: Problems) -> Ragged:
        """Return `Ragged` float32."""
        flat = flatten(plain(columns.column(self.source_column)), self.separator)
        assert flat.offsets is not None  # or the column was refused
        inner = Problems(len(flat.entries))
        entries = pa.RecordBatch.from_arrays([flat.entries], [self.source_column])
        values = super().convert(entries, inner)
        rows = flat.row_of(np.arange(len(values)))
        refuse_labels(self.source_column, self.checks, values, _OfElements(columns, rows), inner)
        if inner.rows is not None and inner.first is not None:
            at, (first, _, why) = np.flatnonzero(inner.rows), inner.first
            explained = functools.partial(_why, at, first, why)
            problems.add(self.source_column, flat.row_of(at), explained)
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


def _why(at: npt.NDArray[np.int64], first: int, why: str, i: int) -> str:
    return why if at[i] == first else "a label cannot be used"
