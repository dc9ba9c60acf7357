"""From the entries of a column to rows of a table: numbered, hashed, or found in a vocabulary."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.computed import Computed
from sparrow.data.errors import DataError, Problems, shown
from sparrow.data.features.base import ColumnFeature, Feature, SparseFeature, TableUse
from sparrow.data.features.dynamic import DynamicRows, raw_ids
from sparrow.data.hashing import hash_texts, hashed, modulo, through_dictionary
from sparrow.data.values import (
    Flat,
    Parsed,
    element_type,
    flatten,
    integers,
    is_compiled,
    is_text,
    offsets_of,
)
from sparrow.data.vocabulary import Vocabulary, Words
from sparrow.embedding import Ragged
from sparrow.fields import Count
from sparrow.kernels.feed import Step, steps

MAPPINGS: Final = ("num_buckets", "hash_bucket_size", "vocabulary", "dynamic")
UNKNOWN: Final = ("row", "empty", "error")
AUTO: Final = "auto"
"""The vocabulary that a run builds from the data to train on."""


@dataclasses.dataclass(frozen=True)
class MappedIds(ColumnFeature, SparseFeature):
    """The base of `IdFeature` and `SequenceFeature`: from entries to row numbers."""

    needs = "ids (integers, strings, or lists of them)"
    name: str
    _: dataclasses.KW_ONLY
    embedding_dim: Count
    column: str | None = None
    compute: Computed | None = None
    num_buckets: Count | None = None
    hash_bucket_size: Count | None = None
    vocabulary: tuple[str | int, ...] | Mapping[str, int] | str | None = None
    vocabulary_has_rows: bool = False
    dynamic: DynamicRows | None = None
    unknown: Literal["row", "empty", "error"] | int | None = None
    default: int | str | None = None
    separator: str | None = None
    as_integer: bool = False
    table: str | None = None

    def __post_init__(self) -> None:
        where = self.check_fields("column", "table", "separator")
        if isinstance(self.vocabulary, list):
            object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        given = [f for f in MAPPINGS if getattr(self, f) is not None]
        if len(given) != 1:
            raise ValueError(
                f"{where}: give exactly one of {', '.join(MAPPINGS[:-1])} and {MAPPINGS[-1]}, got {given or 'none'}"
            )
        if self.unknown is not None:
            if isinstance(self.unknown, int):
                fields.integer(f"{where}: unknown", self.unknown, at_least=0)
            else:
                fields.choice(f"{where}: unknown", self.unknown, UNKNOWN)
            if given[0] == "dynamic":
                raise ValueError(f"{where}: unknown ids of a dynamic vocabulary follow dynamic.unknown")
            if given[0] == "hash_bucket_size":
                raise ValueError(f"{where}: unknown is set, but a hashed feature knows every id; leave it out")
        if self.vocabulary_has_rows and not isinstance(self.vocabulary, str):
            raise ValueError(f"{where}: vocabulary_has_rows is about a file; leave it out")

    @property
    def typed_columns(self) -> tuple[str, ...]:
        is_hashed = self.hash_bucket_size is not None or self.dynamic is not None
        return (self.id_column,) if is_hashed and self.compute is None and not self.as_integer else ()

    @property
    def hashed_words(self) -> tuple[str, int, Callable[[Any], Parsed]] | None:
        if self.hash_bucket_size is None or self.compute is not None:
            return None
        return self.id_column, self.hash_bucket_size, self._hashed

    def _hashed(self, column: Any) -> Parsed:
        return hashed(flatten(column, self.separator).entries, self.as_integer)

    @functools.cached_property
    def words(self) -> Vocabulary | None:
        """The vocabulary, read from its file on first use; None: there is none."""
        if self.vocabulary is None:
            return None
        if self.vocabulary == AUTO:
            raise DataError(f"feature '{self.name}': vocabulary 'auto' is built by a run; train one, or list the words")
        if isinstance(self.vocabulary, str):
            return Vocabulary.load(self.vocabulary, self.vocabulary_has_rows)
        where = f"feature '{self.name}', vocabulary"
        if isinstance(self.vocabulary, Mapping):
            return Vocabulary(tuple(self.vocabulary), where, tuple(self.vocabulary.values()))
        return Vocabulary(self.vocabulary, where)

    def parse_words(self, data: bytes, where: str) -> Vocabulary:
        return Vocabulary.parse(data, where, self.vocabulary_has_rows)

    def hold_words(self, words: Words) -> None:
        """Take the words from memory: the file may have changed by their first use."""
        if self.vocabulary is not None:
            self.__dict__["words"] = words

    def rows_from(self, old: Feature) -> npt.NDArray[np.int64] | None:
        """Return the old rows of known words or numbers, and of unknown ids.

        >>> from sparrow.data import IdFeature
        >>> old, new = (IdFeature("x", vocabulary=words, embedding_dim=4) for words in (("b", "c"), ("a", "b")))
        >>> new.rows_from(old)  # of a, b and unknown words
        array([-1,  0,  2])
        """
        if not isinstance(old, MappedIds):
            return None
        made = np.full(self.num_rows, -1, np.int64)
        if self.words is not None and old.words is not None:
            rows = np.arange(len(self.words)) if self.words.rows is None else self.words.rows
            made[rows] = old.words.find(hash_texts(pa.array(self.words.words)), is_text=True)
        elif self.num_buckets is not None and old.num_buckets is not None:
            both = min(self.num_buckets, old.num_buckets)
            made[:both] = np.arange(both)
        else:
            return None
        if self._unknown_row >= 0 and made[self._unknown_row] < 0:
            made[self._unknown_row] = old._unknown_row
        return made

    @property
    def num_rows(self) -> int:
        """Rows that its table needs; unknown ids with a row of their own have the last one, or the given one."""
        if self.dynamic is not None:
            return self.dynamic.rows
        rows = self.num_buckets or self.hash_bucket_size or (0 if self.words is None else self.words.num_rows)
        return max(rows, self._unknown + 1) if isinstance(self._unknown, int) else rows + (self._unknown == "row")

    @property
    def table_use(self) -> TableUse:
        return dataclasses.replace(super().table_use, dynamic=None if self.dynamic is None else self.dynamic.rules)

    @property
    @abc.abstractmethod
    def may_hold_lists(self) -> bool:
        """Return whether a row may hold several ids without a separator."""

    def words_for(self) -> str:
        if self.num_buckets is not None:
            words = f"integers from 0 to {self.num_buckets - 1}"
        elif self.words is not None:
            words = f"words of a vocabulary of {len(self.words)}"
        else:
            words = "integers or strings"
        if self.separator is not None:
            words += f"; lists, or strings separated by {self.separator!r}"
        elif self.may_hold_lists:
            words += "; one per row, or lists"
        return words + "; may be missing"

    def is_single(self, column: str) -> bool:
        return super().is_single(column) or (self.compute is None and self.default is not None)

    @property
    def _unknown(self) -> str | int:
        if self.hash_bucket_size is not None:
            return "error"
        if self.dynamic is not None:
            return "empty"
        return self.unknown if self.unknown is not None else "error" if self.num_buckets is not None else "row"

    @property
    def _unknown_row(self) -> int:
        """The row of unknown ids; -1: they have none."""
        if isinstance(self._unknown, int):
            return self._unknown
        return self.num_rows - 1 if self._unknown == "row" else -1

    def _default(self, kind: Any) -> np.integer[Any] | None:
        """Return the row, or the raw id, of a missing id in a column of entries of type ``kind``; None: none."""
        value = self.default
        if value is None:
            return None
        if is_text(kind):
            value = str(value)  # as in the column: 17 and "17" are not the same id
        elif isinstance(value, str) and value.removeprefix("-").isdecimal():
            value = int(value)
        is_raw, entries = self.dynamic is not None, pa.array([value])
        parsed = raw_ids(entries, self.as_integer or not is_text(kind)) if is_raw else self._rows(entries)
        if parsed.bad is not None and parsed.bad[0]:
            raise ValueError(f"feature '{self.name}': default {self.default!r} is not a valid id: {parsed.why(0)}")
        found: np.integer[Any] = parsed.values[0]
        return found if is_raw or found >= 0 else None

    def _rows(self, entries: Any) -> Parsed:
        """Return the row numbers (int32) of entries, -1 where there is none; or the raw ids of a dynamic vocabulary."""
        if self.dynamic is not None:
            return raw_ids(entries, self.as_integer)
        if pa.types.is_dictionary(entries.type):
            return through_dictionary(entries, self._rows)
        if self.num_buckets is not None:
            parsed = integers(entries)
            if is_text(entries.type) and parsed.bad is not None:
                why = parsed.why
                parsed = dataclasses.replace(
                    parsed, why=lambda i: f"{why(i)}; words need a vocabulary or hash_bucket_size"
                )
            values = parsed.values
            known = (values >= 0) & (values < self.num_buckets)
            rows = values.astype(np.int32)
        else:
            parsed = hashed(entries, self.as_integer)
            if self.hash_bucket_size is not None:
                return dataclasses.replace(parsed, values=modulo(parsed.values, self.hash_bucket_size))
            assert self.words is not None  # checked by __post_init__
            rows = self.words.find(parsed.values, is_text(entries.type) and not self.as_integer)
            known = rows >= 0
        if known.all():
            return dataclasses.replace(parsed, values=rows)
        return self._with_unknown(entries, dataclasses.replace(parsed, values=rows), known)

    def _with_unknown(self, entries: Any, parsed: Parsed, known: npt.NDArray[np.bool_]) -> Parsed:
        if parsed.missing is not None:
            known = known | parsed.missing
        if self._unknown != "error":
            return dataclasses.replace(parsed, values=np.where(known, parsed.values, np.int32(self._unknown_row)))
        unread = parsed.bad

        def why(i: int) -> str:
            if unread is not None and unread[i]:
                return parsed.why(i)
            value = shown(entries[i].as_py())
            if self.num_buckets is not None:
                return (
                    f"id {value} is outside 0 to {self.num_buckets - 1}; "
                    f"correct the data, or num_buckets of feature '{self.name}'"
                )
            return f"{value} is not in the vocabulary of feature '{self.name}'; build it again, or set unknown to 'row'"

        return dataclasses.replace(parsed, bad=~known if unread is None else ~known | unread, why=why)

    def step(self, kinds: Mapping[str, Any]) -> Step | None:
        if self.compute is not None or not all(is_compiled(kinds[column]) for column in self.columns):
            return None
        element, is_raw = element_type(kinds[self.id_column]), self.dynamic is not None
        table, mapping = None, steps.NUMBERED if self.num_buckets is not None else steps.RAW if is_raw else steps.HASHED
        try:
            default = self._default(element)
            default_row = steps.NO_ROW if default is None else 0 if is_raw else int(default)
            if self.words is not None:
                found = self.words.table(is_text(element) and not self.as_integer)
                table, mapping = (found.keys, found.positions), steps.VOCABULARY
        except DataError:  # a vocabulary that does not fit the column
            return None
        except ValueError:
            if is_raw:  # the reference raises it where an id is missing
                return None
            default, default_row = None, steps.BAD_ROW
        unknown = {"empty": steps.NO_ROW, "error": steps.BAD_ROW}.get(str(self._unknown), self._unknown_row)
        return Step(
            steps.IDS,
            self.columns,
            mapping=mapping,
            size=self.num_buckets or self.hash_bucket_size or 1,
            unknown=unknown,
            default_row=default_row,
            raw_default=int(default) if is_raw and default is not None else 0,
            as_integer=self.as_integer,
            table=table,
            separator=self.separator,
        )

    def _entries(self, columns: Any, problems: Problems) -> Flat:
        return flatten(self.source(columns, problems), self.separator)

    def _read(self, columns: Any, problems: Problems) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_], Flat]:
        """Return the row numbers (-1: none) or raw ids of all entries, the mask of those there are, and the entries."""
        flat = self._entries(columns, problems)
        parsed = self._rows(flat.entries)
        ids, there = parsed.values, np.ones(len(parsed.values), np.bool_)
        if parsed.missing is not None:
            default = self._default(element_type(flat.entries.type))
            there = ~parsed.missing if default is None else there
            ids = np.where(parsed.missing, ids.dtype.type(-1) if default is None else default, ids)
        parsed.report(self.id_column, problems, flat.row_of)
        return ids, there if self.dynamic is not None else ids >= 0, flat


def filled(bags: Ragged, row: int | np.integer[Any], given: Flat) -> Ragged:
    """Return bags with ``row``, of weight 1, as the only entry of rows that were ``given`` none.

    >>> given = flatten(pa.array([[], [7, 8]]), None)
    >>> filled(Ragged(np.array([3, 4]), np.array([0, 0, 2])), 9, given).to_lists()
    [[9], [3, 4]]
    """
    empty = given.lengths == 0
    if not empty.any():
        return bags
    at = bags.offsets[:-1][empty]
    weights = None if bags.weights is None else np.insert(bags.weights, at, 1.0)
    return Ragged(np.insert(bags.values, at, row), bags.offsets + offsets_of(empty), weights)


def kept_ids(
    ids: npt.NDArray[Any], keep: npt.NDArray[np.bool_], flat: Flat, weights: npt.NDArray[np.float32] | None = None
) -> Ragged:
    """Return bags of the ids that are there, or of their rows; ``flat``: the entries that they come from."""
    offsets = np.arange(len(ids) + 1) if flat.offsets is None else flat.offsets
    if keep.all():
        return Ragged(ids, offsets, weights)
    return Ragged(ids[keep], offsets_of(keep)[offsets], None if weights is None else weights[keep])
