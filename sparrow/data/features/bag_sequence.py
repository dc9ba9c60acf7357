"""`BagSequenceFeature`: bags of ids in order, one for each element."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from sparrow.data.batch import Values, as_bags
from sparrow.data.errors import Problems
from sparrow.data.features.base import End, Feature, TableUse, register_feature, truncated
from sparrow.data.values import elements_of, is_list, is_text
from sparrow.data.vocabulary import Words
from sparrow.embedding import Ragged
from sparrow.fields import Count


@register_feature("bag_sequence")
@dataclasses.dataclass(frozen=True)
class BagSequenceFeature(Feature):
    """A sequence whose elements are bags of ids, such as the genres of the last films. Each is pooled by itself.

    >>> from sparrow.data import IdFeature
    >>> genres = IdFeature("genres", num_buckets=9, separator="|", pooling="mean", embedding_dim=8)
    >>> films = BagSequenceFeature("genres", element=genres, separator=";", max_length=5)
    >>> batch = pa.RecordBatch.from_pydict({"genres": ["1|2;3", "4"]})
    >>> [part.convert(batch, Problems(2)).to_lists() for part in films.outputs]
    [[[1, 2, 3], [4]], [[[2.0], [1.0]], [[1.0]]]]

    Attributes:
      name: the name of the feature.
      element: the feature that reads one element, with a table: "id" with a pooling, "tokenize", or "combo".
      max_length: the most elements of a row that are kept.
      keep: the elements of a longer row that are kept: "last" or "first".
      separator: between the elements of a text; a column may also hold lists of elements.
      fill: whether a row without elements has one, of missing values.
      sequences: the columns that are sequences; the others have one value for all elements. None: all columns.
    """

    part = "ids"
    name: str
    _: dataclasses.KW_ONLY
    element: Feature
    max_length: Count
    keep: End = "last"
    separator: str | None = None
    fill: bool = False
    sequences: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        where = self.check_fields("separator")
        use = self.element.table_use
        if use is None or use.is_ordered:
            raise ValueError(f"{where}: element must be a feature with a table, and no sequence")
        if use.combiner is None and not self._is_single:
            raise ValueError(f"{where}: element needs a pooling for the ids of an element")
        for field in ("weight_column", "weight_separator"):
            if getattr(self.element, field, None) is not None:
                raise ValueError(f"{where}: the ids of a sequence have no weights; remove {field}")
        if self.separator is not None and self.separator == getattr(self.element, "separator", None):
            raise ValueError(f"{where}: the separators of elements and of their ids must differ")
        if self.sequences is not None:
            object.__setattr__(self, "sequences", tuple(self.sequences))
            if not self.sequences or not set(self.sequences) <= set(self.element.columns):
                read = ", ".join(self.element.columns)
                raise ValueError(f"{where}: sequences must name some of the columns {read}, got {self.sequences!r}")

    @property
    def _is_single(self) -> bool:
        """Whether an element is always one id."""
        return hasattr(self.element, "cross")

    @property
    def outputs(self) -> tuple[Feature, ...]:
        """The ids of all elements, and how many each element has."""
        return (self,) if self._is_single else (self, ElementSizes(f"{self.name}/sizes", self))

    @property
    def element_pooling(self) -> tuple[str, str] | None:
        """The pooling of an element's rows, and the output with their numbers; None: an element has one id."""
        use = self.table_use
        return None if self._is_single or use.combiner is None else (use.combiner, self.outputs[1].name)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.element.columns

    @property
    def typed_columns(self) -> tuple[str, ...]:
        return self.element.typed_columns

    @property
    def sequence_length(self) -> int:
        return self.max_length

    @property
    def width(self) -> int:
        return self.element.width

    @property
    def table_use(self) -> TableUse:
        """The element's table, looked up id by id."""
        use = self.element.table_use
        assert use is not None
        return dataclasses.replace(use, is_ordered=True)

    def renamed(self, name: str, table: str) -> Feature:
        """Return the same feature; the table is the element's."""
        return dataclasses.replace(self, name=name, element=self.element.renamed(self.element.name, table))

    @property
    def words(self) -> Words | None:
        return self.element.words

    def parse_words(self, data: bytes, where: str) -> Words:
        return self.element.parse_words(data, where)

    def hold_words(self, words: Words) -> None:
        self.element.hold_words(words)

    def holds(self, column: str) -> str:
        return "sequences of: " * self._is_sequence(column) + self.element.holds(column)

    def is_single(self, column: str) -> bool:
        return not self._is_sequence(column) and self.element.is_single(column)

    def _is_sequence(self, column: str) -> bool:
        return self.sequences is None or column in self.sequences

    def refuse(self, column: str, kind: Any) -> str | None:
        if not self._is_sequence(column):
            return self.element.refuse(column, kind)
        if not is_list(kind) and not (is_text(kind) and self.separator is not None):
            return f"feature '{self.name}' needs lists, or texts with a separator, the column holds {kind}"
        return self.element.refuse(column, kind.value_type if is_list(kind) else kind)

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return `Ragged`: the ids of all elements of a row."""
        bags, offsets = self.bags(columns, problems)
        return Ragged(bags, offsets) if isinstance(bags, np.ndarray) else Ragged(bags.values, bags.offsets[offsets])

    def bags(self, columns: Any, problems: Problems) -> tuple[Any, Any]:
        """Return the ids of each element, as `Ragged` or as an array of one id each, and where rows begin and end."""
        names = self.columns
        sequences = names if self.sequences is None else self.sequences
        found = elements_of(columns, names, sequences, self.separator, problems, is_filled=self.fill)
        if found is None:
            count = columns.num_rows
            none = np.zeros(0, np.int32)
            return none if self._is_single else Ragged(none, np.zeros(1, np.int64)), np.zeros(count + 1, np.int64)
        kept = truncated(np.arange(len(found.rows)), found.offsets, self.max_length, self.keep)
        inner = Problems(len(kept.values))
        made = self.element.convert(found.batch.take(pa.array(kept.values)), inner)
        problems.add_inner(inner, found.rows[kept.values])
        if isinstance(made, np.ndarray) and not self._is_single:
            made = as_bags(made)
        return made, kept.offsets


@dataclasses.dataclass(frozen=True)
class ElementSizes(Feature):
    """The number of ids in each element of a `BagSequenceFeature`; `BagSequenceFeature.outputs` makes it."""

    part = "sequences"
    width = 1
    name: str
    of: BagSequenceFeature

    @property
    def columns(self) -> tuple[str, ...]:
        return self.of.columns

    @property
    def sequence_length(self) -> int:
        return self.of.max_length

    def refuse(self, column: str, kind: Any) -> str | None:
        """Refuse nothing: the sequence has refused it already."""
        return None

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return `Ragged`: (elements, 1) float32."""
        bags, offsets = self.of.bags(columns, Problems(columns.num_rows))
        return Ragged(np.diff(bags.offsets).astype(np.float32)[:, None], offsets)
