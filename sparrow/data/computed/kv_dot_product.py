"""`KvDotProduct`: the dot product of two sparse vectors of the same row."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrow.data.computed.base import Column, Computed, check_inputs, check_strings, column_of, register_computed
from sparrow.data.computed.pairs import in_row, read_pairs, refuse_pairs
from sparrow.data.errors import Problems
from sparrow.data.hashing import U64
from sparrow.data.values import element_type, is_number, numbers


@register_computed("kv_dot_product")
@dataclasses.dataclass(frozen=True)
class KvDotProduct(Computed):
    """``sum over common keys of query value * document value``; a key without a value has the value 1.

    >>> batch = pa.RecordBatch.from_pydict({"q": ["a:0.5|b:0.5", "a|b|c"], "d": ["d:0.5|b:0.5", "a|b|d"]})
    >>> KvDotProduct("q", "d", separator="|").compute(batch, Problems(2)).to_pylist()
    [0.25, 2.0]

    Attributes:
      query, document: maps, lists of "key:value" or of keys, or strings of them.
      separator: the separator between the pairs of one string.
      pair_separator: the separator between a key and its value.
    """

    query: Column
    document: Column
    _: dataclasses.KW_ONLY
    separator: str | None = None
    pair_separator: str = ":"

    def __post_init__(self) -> None:
        check_inputs(self, "query", "document")
        check_strings(self, "separator", "pair_separator")

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.query, self.document)

    def refuse_input(self, column: str, kind: Any) -> str | None:
        return None if is_number(element_type(kind)) else refuse_pairs(self.words, kind)

    def holds_input(self, column: str) -> str:
        return f"maps, or strings such as 'a{self.pair_separator}1'; may be missing"

    def is_single(self, column: str) -> bool:
        """Return False: a column without a type may be a list."""
        return False

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return float64; missing where the query or the document is empty."""
        count = columns.num_rows
        (query, weights, asked), (keys, values, rows) = (self._read(given, columns, problems) for given in self.inputs)
        known, at = np.unique(query, return_inverse=True)
        sums = np.bincount(at, weights, len(known))
        place = np.minimum(np.searchsorted(known, keys), max(len(known) - 1, 0))
        common = known[place] == keys if len(known) else np.zeros(len(keys), np.bool_)
        made = np.bincount(rows[common], values[common] * sums[place[common]], count)
        there = (np.bincount(asked, minlength=count) > 0) & (np.bincount(rows, minlength=count) > 0)
        return pa.array(made, mask=~there)

    def _read(
        self, given: Column, columns: Any, problems: Problems
    ) -> tuple[U64, npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        pairs = read_pairs(column_of(given, columns, problems), self.separator, self.pair_separator)
        parsed = numbers(pairs.values)
        if parsed.bad is not None:
            at = np.flatnonzero(parsed.bad)
            name = given if isinstance(given, str) else self.columns[0]
            problems.add(name, pairs.rows[at], lambda i: parsed.why(int(at[i])))
        values = parsed.values if parsed.missing is None else np.where(parsed.missing, 1.0, parsed.values)
        return in_row(pairs.keys, pairs.rows), values, pairs.rows
