"""`RawSequenceFeature`: numbers in order: one or several per element, or buckets that have embeddings."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.batch import Values
from sparrow.data.errors import Problems
from sparrow.data.features.base import End, TableUse, register_feature, truncated
from sparrow.data.features.embeddings import NumberEmbedding
from sparrow.data.features.numeric import NumberFields, RawFeature
from sparrow.data.values import Flat, flatten, is_list, is_text, offsets_of, plain, with_one_entry
from sparrow.fields import Count, Finite


@register_feature("raw_sequence")
@dataclasses.dataclass(frozen=True)
class RawSequenceFeature(NumberFields):
    """Numbers in order, such as the prices of the last items a user saw. Each element is read as `RawFeature` reads it.

    >>> batch = pa.RecordBatch.from_pydict({"prices": ["1;2;3", None, "4"]})
    >>> prices = RawSequenceFeature("prices", separator=";", max_length=2).convert(batch, Problems(3))
    >>> prices.values.tolist(), prices.offsets.tolist()
    ([[2.0], [3.0], [4.0]], [0, 2, 2, 3])

    Attributes:
      name, column, compute, log, log10_above, log10_default, expression, mean, std, boundaries, embedding,
        embedding_dim, table: as in `RawFeature`; a computed column gives lists.
      max_length: the most elements of a row that are kept.
      keep: the elements that are kept of a longer row: "last" or "first".
      dim: numbers of one element: a list of lists, or a text with ``value_separator`` between them.
      separator: between the elements of a text.
      value_separator: between the numbers of one element in a text.
      missing: the number that stands in for a missing one (or NaN); None: a malformed row.
      default: the number of the only element of a row that has none; None: such a row stays empty.
    """

    _: dataclasses.KW_ONLY
    max_length: Count
    keep: End = "last"
    value_separator: str | None = None
    default: Finite | None = None

    def __post_init__(self) -> None:
        where = self.check_fields("separator")
        if self.boundaries is not None:
            object.__setattr__(self, "boundaries", tuple(self.boundaries))
        if self.element.separator is not None and self.value_separator == self.separator:
            raise ValueError(f"{where}: separator and value_separator must differ")
        if self.boundaries is not None and self.dim != 1:
            raise ValueError(f"{where}: boundaries cut one number per element; leave out dim")

    @functools.cached_property
    def element(self) -> RawFeature:
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(NumberFields)}
        return RawFeature(**{**own, "separator": self.value_separator, "compute": None})

    @property
    def part(self) -> str:
        return "sequences" if self.boundaries is None else "ids"

    @property
    def sequence_length(self) -> int:
        return self.max_length

    @property
    def width(self) -> int:
        return self.element.width

    @property
    def learned_embedding(self) -> tuple[NumberEmbedding, int] | None:
        return self.element.learned_embedding

    @property
    def table_use(self) -> TableUse | None:
        """The table of the buckets, looked up element by element; None without boundaries."""
        use = self.element.table_use
        return None if use is None else dataclasses.replace(use, is_ordered=True)

    def words_for(self) -> str:
        text = "" if self.separator is None else f", or texts with {self.separator!r} between"
        return f"lists of {self.element.words_for()}{text}"

    def refuse_column(self, kind: Any) -> str | None:
        if is_text(kind) and self.separator is None and self.max_length > 1:
            return f"feature '{self.name}' needs a separator between the elements of a text, as the column holds {kind}"
        return self.element.refuse_column(kind.value_type if is_list(kind) else kind)

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return `Ragged`: (elements, dim) float32, or int32 buckets."""
        flat = flatten(plain(self.source(columns, problems)), self.separator)
        if self.default is not None:
            flat = self._with_default(flat)
        inner = Problems(len(flat.entries))
        values = self.element.convert(pa.RecordBatch.from_arrays([flat.entries], [self.id_column]), inner)
        problems.add_inner(inner, flat.rows)
        offsets = flat.offsets
        if offsets is None:  # one element per row, or none where it is missing
            there = ~flat.entries.is_null().to_numpy(zero_copy_only=False)
            values, offsets = values[there], offsets_of(there)
        return truncated(values, offsets, self.max_length, self.keep)

    def _with_default(self, flat: Flat) -> Flat:
        """Return the elements with one of default numbers in each row that has none."""
        filled, made = with_one_entry(flat)
        if flat.offsets is None:  # one element per row, of which a missing one is made
            made = flat.entries.is_null().to_numpy(zero_copy_only=False)
        if not made.any():
            return filled
        kind, entries = filled.entries.type, filled.entries
        if is_text(kind):
            default = pa.scalar((self.value_separator or "").join([str(self.default)] * self.dim), kind)
        elif is_list(kind):
            default = pa.scalar([self.default] * self.dim, kind)
        else:
            entries, default = entries.cast(pa.float64()), pa.scalar(self.default, pa.float64())
        return Flat(pc.if_else(pa.array(made), default, entries), filled.offsets)
