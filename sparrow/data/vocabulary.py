"""Vocabularies: the words of a column, in a list or a file, and their positions."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.errors import DataError, shown
from sparrow.data.hash_table import HashTable
from sparrow.data.hashing import U64, hash_integers, hash_texts


class Vocabulary:
    """Distinct words; a word's id is its position.

    Words are found by their 64-bit hash, so that the cost does not grow with the number of words.

    >>> vocabulary = Vocabulary(["red", "green"])
    >>> vocabulary.find(hash_texts(pa.array(["green", "blue", "red"])), is_text=True).tolist()
    [1, -1, 0]
    """

    def __init__(self, words: Sequence[str | int], where: str = "vocabulary") -> None:
        """Take the words. ``where`` is the name in errors: a feature, or a file."""
        self.where = where
        self.words = tuple(str(word) for word in words)
        if not self.words:
            raise DataError("holds no words; build it with sparrow.data.build_vocabularies", where)
        if len(set(self.words)) != len(self.words):
            seen: set[str] = set()
            twice = next(word for word in self.words if word in seen or seen.add(word))  # type: ignore[func-returns-value]
            raise DataError(f"holds the word {shown(twice)} twice; list each word once", where)
        keys = hash_texts(pa.array(self.words))
        if len(np.unique(keys)) != len(keys):
            raise DataError("two words have the same 64-bit hash; remove one of them", where)
        self._texts = HashTable(keys)

    def __len__(self) -> int:
        return len(self.words)

    @functools.cached_property
    def _integers(self) -> HashTable:
        try:
            numbers = np.array([int(word) for word in self.words], np.int64)
        except (ValueError, OverflowError):
            word = next(word for word in self.words if not word.removeprefix("-").isdigit())
            raise DataError(
                f"the column holds integers, the vocabulary the word {shown(word)}; build it from this column",
                self.where,
            ) from None
        return HashTable(hash_integers(numbers))

    def find(self, keys: U64, is_text: bool) -> npt.NDArray[np.int32]:
        """Return the ids of the words with these hashes, -1 for unknown ones.

        Integers are decimal strings in the vocabulary.
        """
        return self.table(is_text).find(keys)

    def table(self, is_text: bool) -> HashTable:
        """Return positions by the hash of words, or of the integers that they represent."""
        return self._texts if is_text else self._integers

    def save(self, path: str | Path) -> None:
        """Write one word a line, UTF-8."""
        for word in self.words:
            if "\n" in word or "\r" in word:
                raise DataError(f"the word {shown(word)} holds a line break and cannot be written", str(path))
        Path(path).write_text("".join(f"{word}\n" for word in self.words), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Read a file that `save` wrote."""
        try:
            data = Path(path).read_bytes()
        except FileNotFoundError:
            raise DataError("there is no such vocabulary file; build it with `sparrow vocab`", str(path)) from None
        except OSError as error:
            raise DataError(f"cannot be read as UTF-8 text: {error}", str(path)) from None
        return cls.parse(data, str(path))

    @classmethod
    def parse(cls, data: bytes, where: str) -> Vocabulary:
        """Return the words of a file's content."""
        try:
            text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()  # with any kind of line end
        except UnicodeDecodeError as error:
            raise DataError(f"cannot be read as UTF-8 text: {error}", where) from None
        return cls(text.split("\n")[:-1] if text.endswith("\n") else text.split("\n") if text else [], where)
