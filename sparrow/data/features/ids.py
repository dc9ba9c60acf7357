"""`IdFeature`: one or several ids per row, pooled."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sparrow.data.batch import Values
from sparrow.data.errors import Problems
from sparrow.data.features.base import Pooling, register_feature
from sparrow.data.features.dynamic import with_presence
from sparrow.data.features.mapped import MappedIds, filled, kept_ids
from sparrow.data.values import Flat, cut, element_type, flatten, holds_values, is_text, numbers
from sparrow.kernels.feed import Step


@register_feature("id")
@dataclasses.dataclass(frozen=True)
class IdFeature(MappedIds):
    """Ids that a table is looked up with; a row that holds several pools their embeddings.

    >>> import pyarrow as pa
    >>> genres = IdFeature("genres", vocabulary=("Action", "Comedy"), separator="|", embedding_dim=8)
    >>> batch = pa.RecordBatch.from_pydict({"genres": ["Comedy|Action", None, "Western"]})
    >>> genres.convert(batch, Problems(3)).to_lists(), genres.num_rows
    ([[1, 0], [], [2]], 3)

    Attributes:
      name: the name of the feature.
      embedding_dim: the dim of its table.
      column: the column of ids; None: the column of the feature's name.
      compute: a column that is computed from others, instead of ``column``; see `sparrow.data.computed`.
      num_buckets: ids are 0 to num_buckets - 1, unchanged.
      hash_bucket_size: ids (any integer or string) are hashed to this number of rows; the hash never changes.
      dynamic: ids (any integer or string) are admitted to rows and evicted from them; see `DynamicRows`.
      vocabulary: the known ids, in a list or in a file of one word a line; an id's row is its position. "auto": a run
        takes the words of the data to train on, the most frequent first, and keeps them. A mapping
        gives each word its row; several words may have one.
      vocabulary_has_rows: whether each line of the file is a word, a space and its row.
      unknown: the policy for ids outside num_buckets or the vocabulary: "row" (one more row for all of them; the
        default of a vocabulary), a number (that row), "empty" (as if missing), "error" (a malformed row; the default
        of num_buckets).
      default: the id that replaces a missing one, and the only id of a row without any; None: a missing id looks
        nothing up and gives zeros.
      separator: the separator between the ids of one string, such as "|".
      as_integer: strings are read as integers before they are hashed, as from a typed file.
      weight_column: a weight per id, in the same format as the ids.
      weight_separator: the separator between an id and its weight, as ":" in "7:0.5"; instead of weight_column.
      pooling: "sum", "mean" (divided by Σw) or "sqrtn" (divided by √Σw²); None: the pooling of the features that
        share its table, or "sum".
      table: name of the table, to share it with other features; None: the feature's own.
    """

    _: dataclasses.KW_ONLY
    weight_column: str | None = None
    weight_separator: str | None = None
    pooling: Pooling | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        where = self.check_fields("weight_column", "weight_separator")
        if self.weight_separator is not None:
            if self.weight_column is not None:
                raise ValueError(f"{where}: weight_column and weight_separator exclude each other")
            if self.weight_separator == self.separator:
                raise ValueError(f"{where}: separator and weight_separator must differ")

    @property
    def columns(self) -> tuple[str, ...]:
        ids = super().columns
        return ids if self.weight_column is None else tuple(dict.fromkeys((*ids, self.weight_column)))

    @property
    def one_id(self) -> str | None:
        return self.id_column if self.compute is None and self.separator is None else None

    @property
    def may_hold_lists(self) -> bool:
        return self.weight_column is not None or self.pooling is not None

    def holds(self, column: str) -> str:
        if column == self.weight_column:
            return f"as many weights as ids of '{self.id_column}'"
        return super().holds(column)

    def refuse(self, column: str, kind: Any) -> str | None:
        if self.compute is None and self.weight_separator is not None and not is_text(element_type(kind)):
            example = f"'7{self.weight_separator}0.5'"
            return f"feature '{self.name}' needs ids with weights, such as {example}, the column holds {kind}"
        if column != self.weight_column:
            return super().refuse(column, kind)
        if holds_values(kind):
            return None
        return f"feature '{self.name}' needs weights (numbers, or lists of them), the column holds {kind}"

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        step = super().step(kinds)
        if step is None:
            return None
        return dataclasses.replace(step, is_weighted=self._is_weighted, weight_separator=self.weight_separator)

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return (batch,) int32 where a row holds one id, or `with_presence` of a raw one; else `Ragged`."""
        ids, there, flat = self._read(columns, problems)
        if not self._is_weighted and flat.offsets is None:
            return ids if self.dynamic is None else with_presence(ids, ~there)
        bags = kept_ids(ids, there, flat, self._weights(columns, flat, problems))
        default = self._default(element_type(flat.entries.type))
        return bags if default is None else filled(bags, default, flat)

    @property
    def _is_weighted(self) -> bool:
        return self.weight_column is not None or self.weight_separator is not None

    def _entries(self, columns: Any, problems: Problems) -> Flat:
        flat = super()._entries(columns, problems)
        if self.weight_separator is None:
            return flat
        return Flat(cut(flat.entries, self.weight_separator, at_last=True)[0], flat.offsets)

    def _weights(self, columns: Any, ids: Flat, problems: Problems) -> npt.NDArray[np.float32] | None:
        """Return a weight for each of the entries ``ids``; None: they have none."""
        if not self._is_weighted:
            return None
        column = self.weight_column or self.id_column
        given = self.source(columns, problems) if self.weight_column is None else columns.column(column)
        flat = flatten(given, self.separator)
        if self.weight_separator is not None:
            flat = Flat(cut(flat.entries, self.weight_separator, at_last=True)[1], flat.offsets)
        counts, weights = ids.lengths, flat.lengths
        differ = np.flatnonzero(counts != weights)
        if differ.size:
            column_of_ids = f"column '{self.id_column}'"
            problems.add(
                column,
                differ,
                lambda i: f"{counts[differ[i]]} ids in {column_of_ids} need as many weights, got {weights[differ[i]]}",
            )
            return np.ones(len(ids.entries), np.float32)
        parsed = numbers(flat.entries)
        parsed.report(column, problems, flat.row_of, missing="a weight is missing")
        return parsed.values.astype(np.float32)
