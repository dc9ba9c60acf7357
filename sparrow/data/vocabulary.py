"""Vocabularies: the words of a column, in a list or a file, and their positions."""

from __future__ import annotations

import abc
import functools
import io
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.errors import DataError, shown
from sparrow.data.hashing import U64, HashTable, hash_integers, hash_texts
from sparrow.files import AnyPath, at


class Words(abc.ABC):
    """The content of a file that decides which row an id has. Runs and exports keep copies of it.

    ``where``: a feature or a file, for errors; ``suffix``: the end of a copy's name.
    """

    where: str
    suffix: ClassVar[str] = ".txt"

    @property
    @abc.abstractmethod
    def content(self) -> bytes:
        """The content of a file with these words. Equal words have equal contents."""

    def save(self, path: str | AnyPath) -> None:
        at(path).write_bytes(self.content)


DIGITS: Final = 20
"""The most characters of an integer of 64 bits."""


class Vocabulary(Words):
    """Distinct words; a word's row is its position, or the number that is given with it.

    Words are found by their 64-bit hash, so that the cost does not grow with the number of words.

    >>> vocabulary = Vocabulary(["red", "green"])
    >>> vocabulary.find(hash_texts(pa.array(["green", "blue", "red"])), is_text=True).tolist()
    [1, -1, 0]
    >>> Vocabulary(["red", "crimson"], rows=[4, 4]).num_rows
    5
    """

    def __init__(
        self, words: Sequence[str | int], where: str = "vocabulary", rows: Sequence[int] | None = None
    ) -> None:
        """Take the words, and their rows where these are not their positions."""
        self.where = where
        self.words = tuple(str(word) for word in words)
        for word, row in () if rows is None else zip(self.words, rows, strict=True):
            if not isinstance(row, int) or isinstance(row, bool) or not 0 <= row < 2**31 - 1:
                raise DataError(f"the row of the word {shown(word)} must be an integer from 0, got {row!r}", where)
        self.rows = None if rows is None else np.array(rows, np.int32)
        if not self.words:
            raise DataError("holds no words; build it with sparrow.data.build_vocabularies", where)
        if len(set(self.words)) != len(self.words):
            seen: set[str] = set()
            twice = next(word for word in self.words if word in seen or seen.add(word))  # type: ignore[func-returns-value]
            raise DataError(f"holds the word {shown(twice)} twice; list each word once", where)
        keys = hash_texts(pa.array(self.words))
        if len(np.unique(keys)) != len(keys):
            raise DataError("two words have the same 64-bit hash; remove one of them", where)
        self._texts = HashTable(keys, self.rows)

    def __len__(self) -> int:
        return len(self.words)

    @property
    def num_rows(self) -> int:
        return len(self.words) if self.rows is None else int(self.rows.max()) + 1

    @functools.cached_property
    def _integers(self) -> HashTable:
        numbers = []
        for word in self.words:
            number = int(word) if word.removeprefix("-").isdecimal() and len(word) <= DIGITS else 1 << 64
            if not -(1 << 63) <= number < 1 << 64:
                why = f"the column holds integers, the vocabulary the word {shown(word)}; build it from this column"
                raise DataError(why, self.where)
            numbers.append(number % (1 << 64))
        return HashTable(hash_integers(np.array(numbers, np.uint64)), self.rows)

    def find(self, keys: U64, is_text: bool) -> npt.NDArray[np.int32]:
        """Return the rows of the words with these hashes, -1 for unknown ones.

        Integers are decimal strings in the vocabulary.
        """
        return self.table(is_text).find(keys)

    def table(self, is_text: bool) -> HashTable:
        """Return rows by the hash of words, or of the integers that they represent."""
        return self._texts if is_text else self._integers

    @property
    def content(self) -> bytes:
        """One word a line, UTF-8, with its row behind a space where rows are given."""
        rows = [""] * len(self.words) if self.rows is None else [f" {row}" for row in self.rows]
        lines = (f"{word}{row}\n" for word, row in zip(self.words, rows, strict=True))
        return "".join(lines).encode("utf-8", "surrogatepass")

    def save(self, path: str | AnyPath) -> None:
        """Write the file, unless a word holds a line break."""
        for word in self.words:
            if "\n" in word or "\r" in word:
                raise DataError(f"the word {shown(word)} holds a line break and cannot be written", str(path))
        super().save(path)

    @classmethod
    def load(cls, path: str | AnyPath, has_rows: bool = False) -> Vocabulary:
        """Read a file that `save` wrote."""
        try:
            data = at(path).read_bytes()
        except FileNotFoundError:
            raise DataError("there is no such vocabulary file; build it with `sparrow vocab`", str(path)) from None
        except OSError as error:
            raise DataError(f"cannot be read as UTF-8 text: {error}", str(path)) from None
        return cls.parse(data, str(path), has_rows)

    @classmethod
    def parse(cls, data: bytes, where: str, has_rows: bool = False) -> Vocabulary:
        """Return the words of a file's content; ``has_rows``: whether each line ends with a space and a row."""
        try:
            text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()  # with any kind of line end
        except UnicodeDecodeError as error:
            raise DataError(f"cannot be read as UTF-8 text: {error}", where) from None
        lines = text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else []
        if not has_rows:
            return cls(lines, where)
        cut = [line.rpartition(" ") for line in lines]
        for number, (word, _, row) in enumerate(cut, 1):
            if not word or not row.isdecimal():
                line = shown(lines[number - 1])
                raise DataError(f"line {number} must be a word, a space and a row, got {line}", where)
        return cls([word for word, _, _ in cut], where, [int(row) for _, _, row in cut])
