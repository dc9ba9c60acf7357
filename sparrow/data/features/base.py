"""`Feature`: one named input of a model, read from a table's columns."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.data.batch import Values
from sparrow.data.computed import Computed
from sparrow.data.errors import Problems
from sparrow.data.features.embeddings import NumberEmbedding
from sparrow.data.values import Parsed, holds_values, is_number, is_text, offsets_of, places_of
from sparrow.data.vocabulary import Vocabulary, Words
from sparrow.embedding import Dynamic, Ragged
from sparrow.kernels.feed import Step
from sparrow.registry import Registry

F = TypeVar("F", bound="type[Feature]")

Pooling = Literal["sum", "mean", "sqrtn"]
End = Literal["last", "first"]
"""The elements of a sequence that are kept."""


@dataclasses.dataclass(frozen=True)
class TableUse:
    """The table that a feature looks its ids up in. Features that name the same table share it.

    Attributes:
      table: the table's name.
      embedding_dim: the dim of its rows.
      combiner: the combiner of the rows of a bag; None where a bag holds one id, so that any combiner fits.
      count_rows: counts the rows that the table needs, which may read a vocabulary from its file.
      dynamic: how the ids get rows, where the feature gives raw ids; None: it gives rows.
      is_ordered: whether the rows of an example stay in order, one per element.
    """

    table: str
    embedding_dim: int
    combiner: str | None
    count_rows: Callable[[], int]
    dynamic: Dynamic | None = None
    is_ordered: bool = False

    @property
    def num_rows(self) -> int:
        return self.count_rows()


class Feature(abc.ABC):
    """A named input, which describes itself: the columns it reads, the part of a batch it fills, the table it uses.

    A feature with a table makes ids, one without makes numbers.

    Attributes:
      name: its unique name, also in batches and activations.
      part: its part of a `Batch`: "ids", "numbers" or "sequences".
      is_general: whether the words of any other feature for a column are more exact than those of its `holds`.
    """

    name: str
    is_general: ClassVar[bool] = False

    def check_fields(self, *strings: str) -> str:
        """Check the name, fields with limits in their types, and ``strings``. Return the begin of other errors."""
        where = f"feature '{self.name}'"
        fields.string("feature: name", self.name)
        held: Any = self
        if getattr(held, "column", None) is not None and held.compute is not None:
            raise ValueError(f"{where}: column and compute exclude each other; keep one")
        fields.check(self, f"{where}: ")
        for field in dataclasses.fields(held):
            if field.name in strings and (
                (value := getattr(self, field.name)) is not None or field.default is not None
            ):
                fields.string(f"{where}: {field.name}", value)
        return where

    @property
    @abc.abstractmethod
    def part(self) -> str:
        """The part of a `Batch` that holds it."""

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The columns it is made from."""

    @property
    def table_use(self) -> TableUse | None:
        """The table that its ids are looked up in; None where it makes numbers."""
        return None

    @property
    def outputs(self) -> tuple[Feature, ...]:
        """The features that fill a batch: itself, and others that it needs beside it."""
        return (self,)

    @property
    def element_pooling(self) -> tuple[str, str] | None:
        """The pooling of the rows of each element of a sequence, and the output with their numbers; None: one row."""
        return None

    @property
    def hashed_words(self) -> tuple[str, int, Callable[[Any], Parsed]] | None:
        """A column whose words are hashed, the rows of its table, and what hashes the column; None: there is none."""
        return None

    def renamed(self, name: str, table: str) -> Feature:
        own: Any = self
        made: Feature = dataclasses.replace(own, name=name, table=table)
        return made

    @property
    def is_sparse(self) -> bool:
        return self.table_use is not None

    @property
    def sequence_length(self) -> int | None:
        """The most elements of an example, where it gives the model a sequence in order; None: it gives none."""
        return None

    @property
    @abc.abstractmethod
    def width(self) -> int:
        """The numbers per row for the model: the dim of its embedding where it has a table."""

    @property
    def learned_embedding(self) -> tuple[NumberEmbedding, int] | None:
        """The embedding of its numbers that the model learns, and its dim; None: it takes the numbers as they are."""
        return None

    def holds(self, column: str) -> str:
        """Return the values that ``column`` must hold, in words, for the people who call an exported model."""
        return f"as the feature '{self.name}' reads it"

    @property
    def one_id(self) -> str | None:
        """The column of its id, where an example has one and the column is read as it is; None otherwise."""
        return None

    @property
    def typed_columns(self) -> tuple[str, ...]:
        """The columns in which 17 and "17" are different ids."""
        return ()

    @property
    def words(self) -> Words | None:
        """The words that decide which row an id has; None: it has none."""
        return None

    def parse_words(self, data: bytes, where: str) -> Words:
        """Return the words of a file's content. ``where``: the name in errors."""
        return Vocabulary.parse(data, where)

    def hold_words(self, words: Words) -> None:  # noqa: B027  most features have none
        """Take the words from memory instead of their file; do nothing where it has none."""

    def rows_from(self, old: Feature) -> npt.NDArray[np.int64] | None:
        """Return the row that each row has in the table of ``old``, -1 for ids it does not know; None: rows differ."""
        return None

    def is_single(self, column: str) -> bool:
        """Return whether a missing value of ``column`` is one missing value instead of a missing list.

        A request may hold nothing but missing values in a column, which then has no type of its own.
        """
        return False

    def lacks_lists(self, column: str, kind: Any) -> bool:
        """Return whether a column of Arrow type ``kind`` holds single values where lists of several are meant."""
        return False

    @abc.abstractmethod
    def refuse(self, column: str, kind: Any) -> str | None:
        """Return the sentence on a column whose Arrow type ``kind`` it cannot read; None: it can."""

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        """Return the compiled conversion, whose results equal `convert`'s; None: there is none.

        ``kinds``: the Arrow types of its columns.
        """
        return None

    def transform(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Transform numbers after they were read, each by itself, where its `step` is transformed."""
        return x

    @abc.abstractmethod
    def convert(self, columns: Any, problems: Problems) -> Values:
        """Read the feature from an Arrow record batch; rows that cannot be used are added to ``problems``."""


class SparseFeature(Feature):
    """A feature that always has a table."""

    part = "ids"
    embedding_dim: int
    table: str | None

    @property
    @abc.abstractmethod
    def num_rows(self) -> int:
        """The rows that its table needs."""

    @property
    def combiner(self) -> str | None:
        """The combiner of the rows of a bag, its ``pooling``; None: a bag holds one id, so that any combiner fits."""
        return getattr(self, "pooling", None)

    @property
    def width(self) -> int:
        return self.embedding_dim

    @property
    def table_use(self) -> TableUse:
        """The table of its own name, or the ``table`` that it shares."""
        return TableUse(self.table or self.name, self.embedding_dim, self.combiner, lambda: self.num_rows)


class ColumnFeature(Feature):
    """A feature of one column, or of one that is computed in its place; ``needs``: the values of its column."""

    needs: ClassVar[str] = "numbers or strings"
    column: str | None
    compute: Computed | None

    @property
    def id_column(self) -> str:
        """The column that it reads; a computed one has the feature's name."""
        return self.column or self.name

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.id_column,) if self.compute is None else self.compute.columns

    def source(self, columns: Any, problems: Problems) -> Any:
        return columns.column(self.id_column) if self.compute is None else self.compute.compute(columns, problems)

    def holds(self, column: str) -> str:
        return self.words_for() if self.compute is None else self.compute.holds(column)

    @abc.abstractmethod
    def words_for(self) -> str:
        """Return the values that its column must hold, in words."""

    def refuse(self, column: str, kind: Any) -> str | None:
        if self.compute is None:
            return self.refuse_column(kind)
        why = self.compute.refuse(column, kind)
        return None if why is None else f"feature '{self.name}': {why}"

    def refuse_column(self, kind: Any) -> str | None:
        """Return the sentence on the type of its column, where it cannot be read; None: it can."""
        return None if holds_values(kind) else f"feature '{self.name}' needs {self.needs}, the column holds {kind}"

    def lacks_lists(self, column: str, kind: Any) -> bool:
        is_whole = is_number(kind) or (is_text(kind) and getattr(self, "separator", None) is None)
        return is_whole and column == self.id_column and self.compute is None and getattr(self, "max_length", 1) > 1

    def is_single(self, column: str) -> bool:
        return self.compute is not None and self.compute.is_single(column)


registry: Registry[Feature] = Registry("feature", Feature, key="kind")
"""Features by kind, as ``name`` is the feature's own."""


def register_feature(name: str) -> Callable[[F], F]:
    """Return a class decorator that registers a custom kind of feature under ``name``, for config files too.

    >>> from sparrow.data import IdFeature
    >>> registry.to_dict(IdFeature("user", num_buckets=10, embedding_dim=4))["kind"]
    'id'
    """

    def decorate(cls: F) -> F:
        if dataclasses.is_dataclass(cls) and "name" not in {field.name for field in dataclasses.fields(cls)}:
            raise TypeError(f"feature '{name}': {cls.__name__} must have a field 'name'")
        return registry.register(name)(cls)

    return decorate


def truncated(values: npt.NDArray[Any], offsets: npt.NDArray[np.int64], length: int, keep: str) -> Ragged:
    """Return the sequences with at most ``length`` elements each: the "last" or the "first".

    >>> truncated(np.array([1, 2, 3, 4]), np.array([0, 3, 4]), 2, "last").to_lists()
    [[2, 3], [4]]
    """
    lengths = np.diff(offsets)
    if len(lengths) == 0 or lengths.max() <= length:
        return Ragged(values, offsets)
    kept = np.minimum(lengths, length)
    starts = offsets[:-1] if keep == "first" else offsets[1:] - kept
    return Ragged(values[places_of(starts, kept)], offsets_of(kept))
