"""`read_column`: the feature that a column most likely is, by its type, its values and its name.

A guess is cheap to override, so the rules are few:

* strings, categories and booleans are ids; so are integers whose name sounds like one (``user_id``, ``zip_code``) or
  that have few values, at most `FEW`, or `SOME` that come often, or thousands without gaps of which some come far
  more often than their neighbors; other integers, and floats, are numbers;
* ids get a vocabulary where all of them were seen and there are at most `MAX_WORDS`, rows by number where they are
  numbered already, and else are hashed;
* numbers are standardized, after a logarithm where a few of them are huge;
* lists are bags of ids, or vectors of numbers of one length; strings such as "Action|Comedy" are bags too;
* times (also as seconds since 1970), long strings, columns of one value, and ids that are different in every row are
  left out; so is a column that repeats another one, such as a title beside the id of the item, or a zip code that
  nearly every user has alone (`without_repeats`);
* where no column has ids, numbers are cut into buckets, since a model needs a table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.config import ConfigError
from sparrow.data import Feature, IdFeature, RawFeature, is_list, is_text

Kind = Literal["id", "number", "bag", "skip"]
KINDS: Final = ("id", "number", "bag", "skip")

FEW: Final = 50
"""Integers of at most this many values are ids, whatever their name."""
SOME: Final = 1_000
"""So are integers of at most this many values that come `OFTEN` times each, on average."""
OFTEN: Final = 50
ROUGH: Final = 4.0
"""How much more than by chance the counts of neighboring ids differ, as squares."""
BUCKETS: Final = 10
EPOCH: Final = (315_532_800, 4_102_444_800)
"""Seconds since 1970 of the years 1980 and 2100: integers between them, or a thousand times them, are times."""
TIME: Final = "left out: a time; make columns of it, such as the hour or the weekday"
AGREED: Final = 100
"""Rows that must agree before a column counts as a repeat of another one."""
MAX_WORDS: Final = 10_000
"""Ids of at most this many values get a vocabulary."""
LONG: Final = 50
"""Strings of more characters than this, on average, are prose."""
SEPARATORS: Final = {"|": r"\|", ";": ";", ",": r",\S"}
"""Separators of words in one string, and patterns that find them; a comma before a space is punctuation."""

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_OF_IDS: Final = re.compile(
    r"u?i?ids?|key|code|zip|users?|items?|movie|product|song|artist|author|brand|cat(egor(y|ies))?|type|city|country|"
    r"region|device|hash|sku|tags?|genres?|channel|campaign|advertiser|publisher"
)
"""Words in the names of columns that hold ids."""


class Reading(NamedTuple):
    """How a column is read: the type of its values, its feature (None: it is left out), and both in words."""

    column: str
    kind: str
    feature: Feature | None
    words: str


def read_column(
    name: str, values: Any, *, complete: bool = True, embedding_dim: int = 16, kind: Kind | None = None
) -> Reading:
    """Return the feature of a column.

    >>> read_column("user_id", pa.chunked_array([[3, 1, 3]])).words
    'ids 0 to 3'
    >>> read_column("price", pa.chunked_array([[1.5, 2.5]])).feature
    RawFeature(name='price', ..., mean=2.0, std=0.5, missing=2.0, ...)

    Args:
      name: the name of the column, and of the feature.
      values: a column of an Arrow table.
      complete: whether these are all values, or some of them.
      embedding_dim: the dim of a table.
      kind: "id", "number", "bag" or "skip" instead of a guess.
    """
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    shown = str(values.type)
    if kind == "skip":
        return Reading(name, shown, None, "left out, as asked")
    if kind is None and values.null_count == len(values):
        return Reading(name, shown, None, "left out: it holds no values")
    if isinstance(values.type, pa.BaseExtensionType):  # periods and intervals of pandas
        if kind is not None:
            raise ConfigError(f"features['{name}']: {shown} cannot be a feature; convert it to strings or numbers")
        return Reading(name, shown, None, f"left out: {shown}; convert it to strings or numbers")
    if any(is_kind(values.type) for is_kind in (pa.types.is_struct, pa.types.is_map, pa.types.is_union)):
        if kind is not None:
            raise ConfigError(f"features['{name}']: {_NESTED.format(shown)}, and give these a kind")
        return Reading(name, shown, None, f"left out: {_NESTED.format(shown)}")
    own = _Column(name, values, complete, embedding_dim)
    if is_list(values.type):
        feature, words = own.of_lists(kind)
    else:
        feature, words = own.of_values(kind)
    return Reading(name, shown, feature, words)


Made = tuple[Feature | None, str]


class _Column(NamedTuple):
    name: str
    values: Any
    complete: bool
    dim: int

    def of_values(self, kind: Kind | None) -> Made:
        values, text = self.values, is_text(self.values.type)
        if text:
            values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
        if text and kind != "bag" and (parsed := _parsed(values)) is not None:
            values = parsed  # text files hold numbers as strings
        types, of = pa.types, values.type
        distinct = pc.count_distinct(values, mode="only_valid").as_py()
        rows = len(values) - values.null_count
        if kind is None and distinct < 2:
            return None, f"left out: it holds {'one value' if distinct else 'no values'}"
        is_unique = kind is None and distinct == rows > FEW
        if kind == "bag":
            return self._bag_of_text()
        if types.is_boolean(of):
            return self._number(values) if kind == "number" else self._ids(values.cast(pa.int64()))
        if kind is None and not _sounds_like_ids(self.name) and _are_times(values):
            return None, TIME
        if types.is_integer(of):
            if is_unique and (_sounds_like_ids(self.name) or _is_numbering(values)):
                return None, "left out: it is different in every row"
            few = distinct <= FEW or (distinct <= SOME and rows >= OFTEN * distinct)
            is_id = kind == "id" or (kind is None and (few or _sounds_like_ids(self.name) or _look_like_ids(values)))
            return self._ids(values) if is_id else self._number(values)
        if types.is_floating(of) or types.is_decimal(of):
            integers = _as_integers(values) if kind == "id" or (kind is None and _sounds_like_ids(self.name)) else None
            return self._number(values) if integers is None else self._ids(integers)
        if types.is_temporal(of):
            return None, TIME
        if not is_text(of):
            return None, f"left out: {of} is neither an id nor a number"
        if kind is None and distinct > rows / 2 and (pc.mean(pc.utf8_length(values)).as_py() or 0) > LONG:
            return None, "left out: long strings; embed or tokenize them"
        if kind is None and not _sounds_like_ids(self.name) and _has_decimal_commas(values):
            return None, "left out: numbers with a decimal comma; write them with a point"
        if kind is None and _separator(values) is not None:
            return self._bag_of_text()
        if is_unique:
            return None, "left out: it is different in every row"
        return self._ids(values)

    def of_lists(self, kind: Kind | None) -> Made:
        entries = self.values.flatten()
        lengths = np.unique(pc.list_value_length(self.values).drop_null().to_numpy(zero_copy_only=False))
        numbers = pa.types.is_floating(entries.type) if kind is None else kind == "number"
        if numbers and len(lengths) == 1 and lengths[0] > 0:
            dim = int(lengths[0])
            return RawFeature(self.name, dim=dim), f"{dim} numbers per row"
        if numbers:
            return None, "left out: lists of numbers of different lengths"
        if is_list(entries.type) or not (is_text(entries.type) or pa.types.is_integer(entries.type)):
            return None, f"left out: {entries.type} cannot be ids"
        return self._ids(entries, pooling="mean")

    def _bag_of_text(self) -> Made:
        if not is_text(self.values.type):
            return self._ids(self.values, pooling="mean")
        separator = _separator(self.values) or "|"
        entries = pc.split_pattern(self.values.drop_null(), separator).flatten()
        return self._ids(entries, pooling="mean", separator=separator)

    def _ids(self, values: Any, **options: Any) -> Made:
        known = pc.unique(values.drop_null())
        fields: dict[str, Any] = {"embedding_dim": self.dim, **options}
        bag = "bags of " if options else ""
        if pa.types.is_integer(known.type) and len(known) and self.complete:
            low, high = pc.min(known).as_py(), pc.max(known).as_py()
            if low >= 0 and high < max(2 * len(known), SOME):
                made = IdFeature(self.name, num_buckets=high + 1, unknown="row", **fields)
                return made, f"{bag}ids 0 to {high}"
        if self.complete and 0 < len(known) <= MAX_WORDS:
            words = tuple(sorted(known.to_pylist()))
            return IdFeature(self.name, vocabulary=words, **fields), f"{bag}ids, a vocabulary of {len(words):,}"
        buckets = _round_up(max(4 * len(known), SOME) if self.complete else max(10 * len(known), MAX_WORDS))
        shared = -math.expm1(-len(known) / buckets)
        shown = f"{len(known):,} ids" if self.complete else f"{len(known):,} ids so far"
        words_ = f"{bag}{shown}, hashed into {buckets:,} rows; about {shared:.0%} share a row"
        return IdFeature(self.name, hash_bucket_size=buckets, **fields), words_

    def _number(self, values: Any) -> Made:
        array = _finite(values)
        if not array.size:
            return None, "left out: it holds no number"
        middle = float(np.median(array))
        log = bool(array.min() >= 0 and array.max() > 20 * (middle + 1))
        shown = np.log1p(array) if log else array
        mean, std = short(float(shown.mean())), short(float(shown.std())) or 1.0
        made = RawFeature(self.name, log=log, mean=mean, std=std, missing=short(middle))
        logs = "logarithm of 1 + x, " if log else ""
        return made, f"numbers {array.min():g} to {array.max():g}, {logs}standardized"


def _sounds_like_ids(name: str) -> bool:
    return any(_OF_IDS.fullmatch(word.lower()) for word in _WORD.findall(name))


def _look_like_ids(values: Any) -> bool:
    """Return whether integers are numbered ids: thousands without large gaps, whose neighbors come unequally often.

    The counts of neighboring numbers, such as ages or distances, differ by chance alone: by about their square root.
    Numbers that people round come at multiples of ten.
    """
    counted = values.drop_null().value_counts()
    numbers, counts = counted.field("values").to_numpy(), counted.field("counts").to_numpy()
    low, high = int(numbers.min()), int(numbers.max())
    if not (len(numbers) > SOME and low >= 0 and high - low < 2 * len(numbers) and counts.sum() >= 4 * len(numbers)):
        return False
    by_number = np.zeros(high - low + 1)
    by_number[numbers - low] = counts
    both = by_number[1:] + by_number[:-1]
    chance = np.mean(np.diff(by_number)[both > 0] ** 2 / both[both > 0])  # 1 for counts that differ by chance
    return bool(chance > ROUGH and counts[numbers % 10 == 0].sum() < 0.2 * counts.sum())


_NESTED: Final = "{} has values inside of values; make a column of each, with flatten() of an Arrow table for instance"


def _parsed(texts: Any) -> Any | None:
    """Return strings that are all numbers as numbers; None: they are not."""
    trimmed = pc.utf8_trim_whitespace(texts.drop_null())
    trimmed = trimmed.filter(pc.not_equal(trimmed, ""))
    if not len(trimmed) or pc.any(pc.match_substring_regex(trimmed, "^[-+]?0[0-9]")).as_py():  # 007 is a code
        return None
    for kind in (pa.int64(), pa.float64()):
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    return None


def _are_times(values: Any) -> bool:
    """Return whether numbers are all seconds since 1970, or milliseconds, microseconds or nanoseconds."""
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return False
    low, high = (float(each) for each in pc.min_max(values.cast(pa.float64(), safe=False)).as_py().values())
    return any(EPOCH[0] * unit <= low <= high <= EPOCH[1] * unit for unit in (1, 1e3, 1e6, 1e9))


def without_repeats(readings: Sequence[Reading], table: Any, named: Collection[str]) -> tuple[Reading, ...]:
    """Return the readings without columns that repeat another one, unless they are ``named``.

    A column repeats an id where each id has one value of it, and there are more than half as many values as ids: it
    adds nothing to the embedding of that id, and is memorized. A genre, which many
    items share, stays.

    >>> users = np.arange(400) % 100
    >>> table = pa.table({"user_id": users, "zip": users * 7 % 997, "plan": users % 5})
    >>> made = [read_column(name, table[name]) for name in table.column_names]
    >>> [reading.words for reading in without_repeats(made, table, ())]
    ['ids 0 to 99', "left out: it repeats 'user_id': each of its values goes with one of 'user_id'", 'ids 0 to 4']
    """
    codes = {}
    for reading in readings:
        feature = reading.feature
        if feature is not None and feature.one_id == reading.column and not is_list(table[reading.column].type):
            encoded = table[reading.column].combine_chunks().dictionary_encode()
            if len(encoded.dictionary) > FEW and not encoded.null_count:
                codes[reading.column] = encoded.indices.to_numpy(zero_copy_only=False), len(encoded.dictionary)
    gone: dict[str, str] = {}
    stay: list[str] = []  # the one with more values first; of as many, the one that sounds like an id
    for name in sorted(codes, key=lambda name: (-codes[name][1], not _sounds_like_ids(name))):
        near = [other for other in stay if codes[name][1] > codes[other][1] / 2 and name not in named]
        found = [other for other in near if _follows(*codes[other], codes[name][0])]
        if found:
            gone[name] = found[0]
        else:
            stay.append(name)
    why = "left out: it repeats '{0}': each of its values goes with one of '{0}'"
    return tuple(
        each._replace(feature=None, words=why.format(gone[each.column])) if each.column in gone else each
        for each in readings
    )


def _follows(keys: npt.NDArray[Any], count: int, values: npt.NDArray[Any]) -> bool:
    """Return whether each key has one value, and enough keys come again to show it."""
    for rows in (slice(1000), slice(None)):
        first = np.zeros(count, values.dtype)
        first[keys[rows][::-1]] = values[rows][::-1]
        if not (first[keys[rows]] == values[rows]).all():
            return False
    return len(keys) - count >= AGREED


def _finite(values: Any) -> npt.NDArray[np.float64]:
    """Return the finite numbers of a column; integers above 2**53 are rounded."""
    array = np.asarray(values.cast(pa.float64(), safe=False).drop_null(), np.float64)
    return array[np.isfinite(array)]


def _has_decimal_commas(texts: Any) -> bool:
    """Return whether strings are all numbers such as "3,14"."""
    held = texts.drop_null()
    return bool(len(held)) and bool(pc.all(pc.match_substring_regex(held, r"^\s*[-+]?\d+,\d+\s*$")).as_py())


def _as_integers(values: Any) -> Any | None:
    """Return floats that are all integers, such as ids with gaps in pandas, as integers; None: they are not."""
    array = np.asarray(values.cast(pa.float64()).drop_null(), np.float64)
    array = array[~np.isnan(array)]
    is_whole = array.size and (array == np.floor(array)).all() and np.abs(array).max() < 2**53
    return pa.array(array.astype(np.int64)) if is_whole else None


def _separator(texts: Any) -> str | None:
    """Return the separator that many of the strings hold; None: they hold one word each."""
    for separator, pattern in SEPARATORS.items():
        found = pc.mean(pc.cast(pc.match_substring_regex(texts, pattern), pa.float64())).as_py()
        if (found or 0.0) > 0.3:
            return separator
    return None


def _is_numbering(values: Any) -> bool:
    """Return whether distinct integers are the numbers of rows: nearly all of a range."""
    span = pc.min_max(values).as_py()
    return bool(span["max"] - span["min"] < 1.1 * len(values))


def in_buckets(reading: Reading, values: Any, embedding_dim: int) -> Reading:
    """Return the reading of a number with a table: an id for each of its buckets. Others stay as they are."""
    feature = reading.feature
    if feature is None or feature.is_sparse or feature.sequence_length is not None or feature.width != 1:
        return reading
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    values = _parsed(values) if is_text(values.type) else values
    cuts = np.quantile(_finite(values), np.arange(1, BUCKETS) / BUCKETS)
    cut = tuple(sorted({short(float(x)) for x in cuts}))
    made = RawFeature(
        reading.column, boundaries=cut, embedding_dim=embedding_dim, missing=getattr(feature, "missing", 0.0)
    )
    return reading._replace(feature=made, words=f"{reading.words.partition(',')[0]}, in {len(cut) + 1} buckets")


def _round_up(number: int) -> int:
    """Return the next number of two digits and zeros.

    >>> _round_up(12_345)
    13000
    """
    unit: int = 10 ** max(0, len(str(number)) - 2)
    return -(-number // unit) * unit


def short(number: float) -> float:
    """Return a number of six digits, which a config shows."""
    return float(f"{number:.6g}")
