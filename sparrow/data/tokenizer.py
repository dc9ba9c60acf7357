"""`Tokenizer`: a tokenizer.json, read by the library ``tokenizers``."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from sparrow.data.errors import DataError
from sparrow.data.vocabulary import Words
from sparrow.files import AnyPath, at


class Tokenizer(Words):
    """From texts to the numbers of their tokens. Special tokens are not added.

    Attributes:
      where: the file.
    """

    suffix: ClassVar[str] = ".json"

    def __init__(self, content: bytes, where: str) -> None:
        self._content, self.where = content, where

    @classmethod
    def load(cls, path: str | AnyPath) -> Tokenizer:
        try:
            return cls(at(path).read_bytes(), str(path))
        except OSError as error:
            raise DataError(f"the tokenizer cannot be read: {error.strerror}", str(path)) from None

    @property
    def content(self) -> bytes:
        return self._content

    @functools.cached_property
    def _model(self) -> Any:
        try:
            import tokenizers
        except ImportError:
            raise DataError(
                "a tokenizer needs the library tokenizers: pip install 'sparrow-rec[tokenize]'", self.where
            ) from None
        try:
            made = tokenizers.Tokenizer.from_str(self._content.decode("utf-8"))
        except Exception as error:  # the library raises no type of its own
            raise DataError(f"is not a tokenizer.json: {error}", self.where) from None
        made.no_padding()  # padding and truncation are for models of language
        made.no_truncation()
        return made

    @property
    def num_rows(self) -> int:
        """The rows that a table needs: one for each number that a token may have."""
        numbers = self._model.get_vocab(with_added_tokens=True).values()
        return max(numbers, default=0) + 1

    def encode(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the numbers of the tokens, text after text, and the number of tokens in each."""
        found = [part.ids for part in self._model.encode_batch(list(texts), add_special_tokens=False)]
        lengths = np.array([len(ids) for ids in found], np.int64)
        return np.array([number for ids in found for number in ids], np.int32), lengths
