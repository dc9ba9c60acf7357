"""`TokenizeFeature`: the tokens of a text, pooled; `Tokenizer`: a tokenizer.json, read by its library."""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow import fields
from sparrow.data.batch import Values
from sparrow.data.computed import Computed
from sparrow.data.errors import DataError, Problems
from sparrow.data.features.base import ColumnFeature, Pooling, SparseFeature, register_feature
from sparrow.data.values import element_type, is_list, is_text, offsets_of, plain
from sparrow.data.vocabulary import Words
from sparrow.embedding import Ragged
from sparrow.fields import Count
from sparrow.files import AnyPath, at

_HALF: Final = {0xFF01 + i: 0x21 + i for i in range(94)} | {0x3000: 0x20}
_CHINESE: Final = re.compile(r"\s*([\u3400-\u4dbf\u4e00-\u9fff])\s*")

NORMALIZERS: Final[Mapping[str, Callable[[str], str]]] = {
    "lower": str.lower,
    "upper": str.upper,
    "half_width": lambda text: text.translate(_HALF),
    "split_chinese": lambda text: _CHINESE.sub(r" \1 ", text).replace("  ", " ").strip(),
    "remove_symbols": lambda text: "".join(c for c in text if unicodedata.category(c)[0] not in "PS"),
    "remove_space": lambda text: "".join(text.split()),
}


class Tokenizer(Words):
    """From texts to the numbers of their tokens, by a file. Special tokens are not added."""

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


@register_feature("tokenize")
@dataclasses.dataclass(frozen=True)
class TokenizeFeature(ColumnFeature, SparseFeature):
    """The tokens of a text, whose embeddings are pooled. It needs the library ``tokenizers``.

    ``pip install 'sparrow-rec[tokenize]'`` installs it.

    Attributes:
      name: the name of the feature.
      embedding_dim: the dim of its table, which has a row for each token.
      vocabulary: the file tokenizer.json, as the library writes it.
      column: the column of texts; None: the column of the feature's name.
      compute: a column that is computed from others, instead of ``column``; see `sparrow.data.computed`.
      normalize: changes of the text before it is cut, in this order: "lower", "upper", "half_width" (of full-width
        letters), "split_chinese" (spaces around each character), "remove_symbols" (punctuation too), "remove_space".
      default: the text that replaces a missing or empty one; None: it has no tokens, and gives zeros.
      pooling: "sum", "mean" or "sqrtn".
      table: the name of the table; None: the feature's own.
    """

    name: str
    _: dataclasses.KW_ONLY
    embedding_dim: Count
    vocabulary: str
    column: str | None = None
    compute: Computed | None = None
    normalize: tuple[
        Literal["lower", "upper", "half_width", "split_chinese", "remove_symbols", "remove_space"], ...
    ] = ()
    default: str | None = None
    pooling: Pooling = "sum"
    table: str | None = None

    def __post_init__(self) -> None:
        where = self.check_fields("column", "table", "vocabulary")
        object.__setattr__(self, "normalize", tuple(self.normalize))
        for name in self.normalize:
            fields.choice(f"{where}: normalize", name, NORMALIZERS)

    @functools.cached_property
    def words(self) -> Tokenizer:
        """The tokenizer, read from its file on first use."""
        return Tokenizer.load(self.vocabulary)

    def parse_words(self, data: bytes, where: str) -> Words:
        return Tokenizer(data, where)

    def hold_words(self, words: Words) -> None:
        self.__dict__["words"] = words

    @property
    def num_rows(self) -> int:
        return self.words.num_rows

    def words_for(self) -> str:
        return "texts; may be missing"

    def is_single(self, column: str) -> bool:
        return self.compute is None or self.compute.is_single(column)

    def refuse_column(self, kind: Any) -> str | None:
        if is_text(element_type(kind)) and not is_list(kind):
            return None
        return f"feature '{self.name}' cuts texts into tokens, the column holds {kind}"

    def convert(self, columns: Any, problems: Problems) -> Values:
        """Return `Ragged`: the numbers of the tokens."""
        column = plain(self.source(columns, problems))
        texts = [text or self.default or "" for text in column.cast(pa.string()).to_pylist()]
        for name in self.normalize:
            texts = list(map(NORMALIZERS[name], texts))
        tokens, lengths = self.words.encode(texts)
        return Ragged(tokens, offsets_of(lengths))
