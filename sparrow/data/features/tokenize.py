"""`TokenizeFeature`: the tokens of a text, pooled."""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import pyarrow as pa

from sparrow import fields
from sparrow.data.batch import Values
from sparrow.data.computed import Computed
from sparrow.data.errors import Problems
from sparrow.data.features.base import POOLINGS, ColumnFeature, SparseFeature, register_feature
from sparrow.data.tokenizer import Tokenizer
from sparrow.data.values import element_type, is_list, is_text, offsets_of, plain
from sparrow.data.vocabulary import Words
from sparrow.embedding import Ragged

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
    embedding_dim: int
    vocabulary: str
    column: str | None = None
    compute: Computed | None = None
    normalize: tuple[
        Literal["lower", "upper", "half_width", "split_chinese", "remove_symbols", "remove_space"], ...
    ] = ()
    default: str | None = None
    pooling: str = "sum"
    table: str | None = None

    def __post_init__(self) -> None:
        where = self.check_fields(["embedding_dim"], ["column", "table", "vocabulary"], pooling=POOLINGS)
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
        """Take the tokenizer from memory: the file may have changed by its first use."""
        self.__dict__["words"] = words

    @property
    def num_rows(self) -> int:
        return self.words.num_rows

    @property
    def combiner(self) -> str | None:
        return self.pooling

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
