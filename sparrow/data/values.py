"""Arrow columns as flat NumPy values: integers, numbers, lists and separated strings, with their mistakes.

Columns of views, which Polars and other libraries hold, and of bytes become plain strings before (`without_views`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.errors import Problems, shown

Integers = npt.NDArray[np.int64]


def offsets_of(lengths: npt.NDArray[Any]) -> Integers:
    """Return where each of some lists begins that lie one after the other, and the end of the last.

    >>> offsets_of(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def places_of(starts: npt.NDArray[Any], lengths: npt.NDArray[Any]) -> Integers:
    """Return the places of the elements of lists that begin at ``starts``, one list after the other.

    >>> places_of(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


@dataclasses.dataclass(frozen=True)
class Flat:
    """The entries of a column one after the other, an Arrow array without nesting.

    ``offsets``: (rows + 1,) where each row's entries start; None: one entry per row.
    """

    entries: Any
    offsets: Integers | None

    def row_of(self, entries: Integers) -> Integers:
        return entries if self.offsets is None else np.searchsorted(self.offsets, entries, side="right") - 1

    @property
    def lengths(self) -> Integers:
        return np.ones(len(self.entries), np.int64) if self.offsets is None else np.diff(self.offsets)

    @property
    def rows(self) -> Integers:
        if self.offsets is None:
            return np.arange(len(self.entries))
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


@dataclasses.dataclass(frozen=True)
class Parsed:
    """Converted entries.

    Attributes:
      values: (entries,) anything where missing or bad.
      missing: mask; None: none is.
      bad: mask of the entries that cannot be read; None: all can.
      why: returns the mistake in entry i.
    """

    values: npt.NDArray[Any]
    missing: npt.NDArray[np.bool_] | None
    bad: npt.NDArray[np.bool_] | None = None
    why: Callable[[int], str] = str

    def report(
        self,
        column: str,
        problems: Problems,
        row_of: Callable[[Integers], Integers] = lambda entries: entries,
        missing: str | None = None,
    ) -> None:
        """Add the entries that cannot be read to the problems of a column, and missing ones if there is a sentence.

        ``row_of``: returns the rows that entries are in.
        """
        if missing is not None and self.missing is not None:
            problems.add(column, row_of(np.flatnonzero(self.missing)), lambda _: missing)
        if self.bad is not None:
            at, why = np.flatnonzero(self.bad), self.why
            problems.add(column, row_of(at), lambda i: why(int(at[i])))


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is a string (or bytes)."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type is read as a number: integers, floats, decimals, booleans."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind))


INTEGERS: Final = "integers"
STRINGS: Final = "strings"


def kind_of(kind: Any) -> str | None:
    """Return whether an Arrow type holds integers or strings, also in lists; None: neither.

    >>> kind_of(pa.list_(pa.int8())), kind_of(pa.dictionary(pa.int8(), pa.string())), kind_of(pa.float32())
    ('integers', 'strings', None)
    """
    element = element_type(kind)
    return STRINGS if is_text(element) else INTEGERS if pa.types.is_integer(element) else None


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list of any kind."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_compiled(kind: Any) -> bool:
    """Return whether the compiled conversions read columns of this type; NumPy reads all."""
    element, types = element_type(kind), pa.types
    return bool(
        is_text(element)
        or types.is_integer(element)
        or types.is_boolean(element)
        or types.is_float32(element)
        or types.is_float64(element)
    )


def holds_values(kind: Any) -> bool:
    """Return whether an Arrow type holds numbers or strings, also in lists and dictionaries."""
    return is_number(element_type(kind)) or is_text(element_type(kind))


def element_type(kind: Any) -> Any:
    """Return the type of a column's entries: inside a list, behind a dictionary."""
    if is_list(kind):
        kind = kind.value_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def plain(column: Any) -> Any:
    """Return the column without a dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def flatten(column: Any, separator: str | None) -> Flat:
    """Return the entries of a column of single values, of lists, or of strings with several separated values.

    A missing list and an empty string hold no entries.

    >>> flat = flatten(pa.array(["a|b", "", None, "c"]), "|")
    >>> flat.entries.to_pylist(), flat.offsets.tolist()
    (['a', 'b', 'c'], [0, 2, 2, 2, 3])
    """
    if separator is not None:
        column = plain(column)
    kind = column.type
    if separator is not None and is_text(kind):
        column = pc.split_pattern(pc.if_else(_is_empty(column), None, column), separator)
        kind = column.type
    if not is_list(kind):
        return Flat(column, None)
    if pa.types.is_fixed_size_list(kind):
        column = column.cast(pa.large_list(kind.value_type))
    entries = column.flatten()  # leaves out entries under a missing list
    lengths = pc.fill_null(pc.list_value_length(column), 0)
    return Flat(entries, offsets_of(lengths.to_numpy(zero_copy_only=False)))


def with_one_entry(flat: Flat) -> tuple[Flat, npt.NDArray[np.bool_]]:
    """Return the entries with a missing one in each row that has none, and the mask of these.

    >>> flat, made = with_one_entry(flatten(pa.array([[7], None, []]), None))
    >>> flat.entries.to_pylist(), flat.offsets.tolist(), made.tolist()
    ([7, None, None], [0, 1, 2, 3], [False, True, True])
    """
    if flat.offsets is None:
        return flat, np.zeros(len(flat.entries), np.bool_)
    counts = np.diff(flat.offsets)
    offsets = offsets_of(np.maximum(counts, 1))
    made = np.zeros(offsets[-1], np.bool_)
    made[offsets[:-1][counts == 0]] = True
    places = np.cumsum(~made) - 1
    return Flat(flat.entries.take(pa.array(places, mask=made)), offsets), made


def cut(texts: Any, separator: str, *, at_last: bool = False) -> tuple[Any, Any]:
    """Return the parts before and after the first or last separator of each string; missing where there is none.

    >>> texts = pa.array(["a:b:2", "c", None])
    >>> [part.to_pylist() for part in cut(texts, ":")], [part.to_pylist() for part in cut(texts, ":", at_last=True)]
    ([['a', 'c', None], ['b:2', None, None]], [['a:b', 'c', None], ['2', None, None]])
    """
    parts = pc.split_pattern(plain(texts), separator, max_splits=1, reverse=at_last)
    lengths = pc.fill_null(pc.list_value_length(parts), 0).to_numpy(zero_copy_only=False)
    first = np.cumsum(lengths) - lengths
    words = parts.flatten()
    return (
        words.take(pa.array(first, pa.int64(), mask=lengths < 1)),
        words.take(pa.array(first + 1, pa.int64(), mask=lengths < 2)),
    )


def integers(entries: Any) -> Parsed:
    """Return integers from integers, strings such as "17", and floats such as 17.0 (NaN is missing).

    >>> parsed = integers(pa.array([1.0, None, 2.5]))
    >>> parsed.missing.tolist(), parsed.bad.tolist(), parsed.why(2)
    ([False, True, False], [False, False, True], '2.5 is not an integer')
    """
    kind = entries.type
    if pa.types.is_integer(kind):
        return Parsed(_filled(entries, 0), _missing(entries))
    if pa.types.is_boolean(kind):
        return Parsed(_filled(entries.cast(pa.uint8()), 0), _missing(entries))
    if is_text(kind):
        return _from_text(entries, pa.int64(), "an integer")
    numbers = _filled(entries.cast(pa.float64()), np.nan)
    missing = np.isnan(numbers)
    whole = np.where(missing, 0.0, numbers)
    bad = (whole != np.floor(whole)) | (np.abs(whole) > 2.0**53)
    return Parsed(
        np.where(bad, 0.0, whole).astype(np.int64),
        missing if missing.any() else None,
        bad if bad.any() else None,
        lambda i: f"{numbers[i]:g} is not an integer",
    )


def numbers(entries: Any) -> Parsed:
    """Return numbers as float64; missing and NaN are missing, infinite ones are bad.

    >>> parsed = numbers(pa.array(["1.5", None, "x"]))
    >>> parsed.values[0], parsed.missing.tolist(), parsed.why(2)
    (np.float64(1.5), [False, True, False], "'x' is not a number")
    """
    entries = plain(entries)
    if is_text(entries.type):
        parsed = _from_text(entries, pa.float64(), "a number")
    else:
        kind = entries.type
        if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
            entries = entries.cast(pa.uint8() if pa.types.is_boolean(kind) else pa.float64())
        parsed = Parsed(_filled(entries, 0).astype(np.float64), _missing(entries))
    values, infinite = parsed.values, np.isinf(parsed.values)
    if np.isfinite(values).all():
        return parsed
    missing = np.isnan(values) if parsed.missing is None else np.isnan(values) | parsed.missing
    bad = infinite if parsed.bad is None else infinite | parsed.bad
    return Parsed(
        np.where(np.isfinite(values), values, 0.0),
        missing,
        bad if bad.any() else None,
        lambda i: f"{values[i]:g} is not a finite number" if infinite[i] else parsed.why(i),
    )


def _from_text(entries: Any, kind: Any, what: str) -> Parsed:
    trimmed = pc.utf8_trim_whitespace(entries)
    empty = _is_empty(trimmed)
    if pc.any(empty).as_py():
        trimmed = pc.if_else(empty, None, trimmed)
    missing = _missing(trimmed)
    try:
        return Parsed(_filled(trimmed.cast(kind), 0), missing)
    except pa.ArrowInvalid:  # some string is not a number: parse them one by one to find it
        texts = trimmed.to_pylist()
    read = [None if text is None else _parse(text, kind) for text in texts]
    bad = np.array([text is not None and value is None for text, value in zip(texts, read, strict=True)])
    values = np.array([value or 0 for value in read], np.int64 if pa.types.is_integer(kind) else np.float64)
    return Parsed(values, missing, bad, lambda i: f"{shown(texts[i])} is not {what}")


def _parse(text: str, kind: Any) -> Any:
    try:
        return pa.scalar(text).cast(kind).as_py()
    except pa.ArrowInvalid:
        return None


def _is_empty(texts: Any) -> Any:
    return pc.equal(texts, pa.scalar("", texts.type))


def _missing(entries: Any) -> npt.NDArray[np.bool_] | None:
    if not entries.null_count:
        return None
    return np.asarray(entries.is_null().to_numpy(zero_copy_only=False))


def _filled(entries: Any, value: float) -> npt.NDArray[Any]:
    if entries.null_count:
        entries = entries.fill_null(pa.scalar(value).cast(entries.type))
    return np.asarray(entries.to_numpy(zero_copy_only=False))


def plain_kind(kind: Any) -> Any:
    """Return an Arrow type with strings for views and bytes, also in lists and dictionaries.

    >>> print(plain_kind(pa.list_(pa.string_view())), plain_kind(pa.binary()), plain_kind(pa.int8()))
    list<item: large_string> large_string int8
    """
    types = pa.types
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return pa.large_string()
    if types.is_dictionary(kind):
        inner = plain_kind(kind.value_type)
        return kind if inner == kind.value_type else pa.dictionary(kind.index_type, inner, kind.ordered)
    if types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind):
        inner = plain_kind(kind.value_type)
        if inner == kind.value_type:
            return kind
        field = kind.value_field.with_type(inner)
        if types.is_fixed_size_list(kind):
            return pa.list_(field, kind.list_size)
        return pa.list_(field) if types.is_list(kind) else pa.large_list(field)
    return kind


def without_views(table: Any, *, only_strings: bool = False) -> Any:
    """Return an Arrow table with plain strings for views and bytes.

    A column of bytes that are not UTF-8 is an ``ArrowInvalid``; with ``only_strings`` it stays as it is.

    >>> without_views(pa.table({"word": pa.array(["a"], pa.string_view())})).schema.types
    [DataType(large_string)]
    """
    for index, field in enumerate(table.schema):
        if (kind := plain_kind(field.type)) != field.type:
            try:
                table = table.set_column(index, field.with_type(kind), table[index].cast(kind))
            except pa.ArrowInvalid:
                if not only_strings:
                    raise
    return table


class Elements(NamedTuple):
    """The elements of sequences: a record batch with a row for each, the row it is in, and where each row's begin."""

    batch: Any
    rows: Integers
    offsets: Integers


def elements_of(
    columns: Any,
    names: Sequence[str],
    sequences: Sequence[str],
    separator: str | None,
    problems: Problems,
    *,
    is_filled: bool = False,
) -> Elements | None:
    """Return the elements of the columns ``sequences``; the other ones of ``names`` are repeated for each element.

    None where their lengths differ: these rows are added to the problems. ``is_filled``: a row without elements has a
    missing one.
    """
    flats = {name: flatten(plain(columns.column(name)), separator) for name in sequences}
    if is_filled:
        flats = {name: with_one_entry(flat)[0] for name, flat in flats.items()}
    ends = {
        name: np.arange(len(flat.entries) + 1) if flat.offsets is None else flat.offsets for name, flat in flats.items()
    }
    first, offsets = sequences[0], ends[sequences[0]]
    lengths = np.diff(offsets)
    for name, own in ends.items():
        counts = np.diff(own)
        if (differ := np.flatnonzero(counts != lengths)).size:
            problems.add(
                name,
                differ,
                lambda i, counts=counts, differ=differ: (  # type: ignore[misc]
                    f"sequences must have one length, got {lengths[differ[i]]} of '{first}' and {counts[differ[i]]}"
                ),
            )
            return None
    rows = np.repeat(np.arange(columns.num_rows), lengths)
    arrays = [flats[name].entries if name in flats else columns.column(name).take(pa.array(rows)) for name in names]
    return Elements(pa.RecordBatch.from_arrays(arrays, list(names)), rows, offsets)
