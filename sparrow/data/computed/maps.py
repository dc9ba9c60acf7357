"""Columns of maps: `Lookup` of keys, `Match` in maps of maps, `KvDotProduct` of two sparse vectors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.data.computed.base import Column, Computed, column_of, name_of, register_computed
from sparrow.data.computed.pairs import (
    Combiner,
    combined,
    find_keys,
    in_row,
    listed,
    read_keys,
    read_pairs,
    refuse_pairs,
    texts_of,
)
from sparrow.data.errors import Problems
from sparrow.data.hashing import U64
from sparrow.data.values import cut, element_type, flatten, is_list, is_number, is_text, numbers

OUTER, INNER, OUTER_KEY, INNER_KEY = "|", ",", "^", ":"


@register_computed("lookup")
@dataclasses.dataclass(frozen=True)
class Lookup(Computed):
    """The values of keys in a map, such as a user's clicks by category, looked up with the item's category.

    >>> batch = pa.RecordBatch.from_pydict({"clicks": ["shoes:3|hats:1", "shoes:2"], "category": ["hats", "hats"]})
    >>> Lookup("clicks", "category", map_separator="|").compute(batch, Problems(2)).to_pylist()
    [1.0, None]

    Attributes:
      map: maps, lists of "key:value", or strings of them. Of a key that is there twice, the first counts.
      key: one key per row, or several.
      separator: the separator between the keys of one string.
      map_separator: the separator between the pairs of one string.
      pair_separator: the separator between a key and its value.
      value_separator: the separator between several numbers of one value, for a `combiner` of None.
      combiner: "sum", "mean", "min", "max" or "count" of the values found, as one number; None: all of them, as a list.
      with_key: whether a value is preceded by its key, as in "hats_1"; for a `combiner` of None.
    """

    map: Column
    key: Column
    _: dataclasses.KW_ONLY
    separator: str | None = None
    map_separator: str = "\x1d"
    pair_separator: str = ":"
    value_separator: str | None = None
    combiner: Combiner | None = "sum"
    with_key: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combiner is not None and (self.with_key or self.value_separator is not None):
            raise ValueError("Lookup: with_key and value_separator need a combiner of null")

    def refuse_input(self, column: str, kind: Any) -> str | None:
        return refuse_pairs(self.words, kind) if column == self.map else super().refuse_input(column, kind)

    def holds_input(self, column: str) -> str:
        if column == self.map:
            return f"maps, or strings such as 'a{self.pair_separator}1'; may be missing"
        return "keys; may be missing"

    def is_single(self, column: str) -> bool:
        """Return whether keys are single: a map without a type may be a list."""
        return column != self.map

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return float64, missing where no key is found, or lists of the values found, in the order of the keys."""
        count = columns.num_rows
        pairs = read_pairs(column_of(self.map, columns, problems), self.map_separator, self.pair_separator)
        keys, rows = read_keys(column_of(self.key, columns, problems), self.separator)
        found = find_keys(pairs, keys, rows)
        there = np.flatnonzero(found >= 0)
        keys, rows, values = keys.take(pa.array(there)), rows[there], pairs.values.take(pa.array(found[there]))
        if self.combiner is not None:
            return combined(values, rows, count, self.combiner, name_of(self.map), problems)
        if self.value_separator is not None:
            flat = flatten(texts_of(values), self.value_separator)
            inner = flat.rows
            keys, rows, values = keys.take(pa.array(inner)), rows[inner], flat.entries
        if self.with_key:
            values = pc.binary_join_element_wise(keys, texts_of(values), "_")
        return listed(values, rows, count)


@register_computed("match")
@dataclasses.dataclass(frozen=True)
class Match(Computed):
    """The values of two keys in a map of maps, such as a user's clicks by category and brand.

    >>> batch = pa.RecordBatch.from_pydict({"seen": ["shoes^nike:3,puma:1|hats^nike:2"] * 2, "brand": ["nike", "x"]})
    >>> Match("seen", skey="brand").compute(batch, Problems(2)).to_pylist()
    [5.0, None]

    Attributes:
      nested_map: strings such as ``first^second:1,other:2|next^second:3``.
      pkey: the first keys; None: all.
      skey: the second keys; None: all.
      separator: the separator between the keys of one string.
      combiner: "sum", "mean", "min", "max" or "count" of the values found, as one number; None: all of them, as a list.
      show_pkey, show_skey: whether a value is preceded by its keys, as in "shoes_nike_3"; for a `combiner` of None.
    """

    nested_map: Column
    _: dataclasses.KW_ONLY
    pkey: Column | None = None
    skey: Column | None = None
    separator: str | None = None
    combiner: Combiner | None = "sum"
    show_pkey: bool = False
    show_skey: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combiner is not None and (self.show_pkey or self.show_skey):
            raise ValueError("Match: show_pkey and show_skey need a combiner of null")

    def refuse_input(self, column: str, kind: Any) -> str | None:
        if column != self.nested_map:
            return super().refuse_input(column, kind)
        if is_text(element_type(kind)) and not is_list(kind):
            return None
        return f"{self.words} strings such as 'a^b:1,c:2', the column holds {kind}"

    def holds_input(self, column: str) -> str:
        return "strings such as 'a^b:1,c:2|d^b:3'; may be missing" if column == self.nested_map else "keys"

    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return float64, missing where nothing is found, or lists of the values found, in the order of the map."""
        count = columns.num_rows
        outer = read_pairs(column_of(self.nested_map, columns, problems), OUTER, OUTER_KEY)
        inner = flatten(outer.values, INNER)  # of each outer pair
        at = inner.rows
        first, rows = outer.keys.take(pa.array(at)), outer.rows[at]
        second, values = cut(texts_of(inner.entries), INNER_KEY)
        chosen = np.ones(len(rows), np.bool_)
        for keys, wanted in ((first, self.pkey), (second, self.skey)):
            if wanted is not None:
                given = read_keys(column_of(wanted, columns, problems), self.separator)
                chosen &= np.isin(in_row(keys, rows), in_row(*given))
        there = pa.array(np.flatnonzero(chosen))
        first, second, values, rows = first.take(there), second.take(there), values.take(there), rows[chosen]
        if self.combiner is not None:
            return combined(values, rows, count, self.combiner, name_of(self.nested_map), problems)
        shown = [keys for keys, is_shown in ((first, self.show_pkey), (second, self.show_skey)) if is_shown]
        return listed(pc.binary_join_element_wise(*shown, values, "_") if shown else values, rows, count)


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

    may_be_lists = True
    query: Column
    document: Column
    _: dataclasses.KW_ONLY
    separator: str | None = None
    pair_separator: str = ":"

    def refuse_input(self, column: str, kind: Any) -> str | None:
        return None if is_number(element_type(kind)) else refuse_pairs(self.words, kind)

    def holds_input(self, column: str) -> str:
        return f"maps, or strings such as 'a{self.pair_separator}1'; may be missing"

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
        parsed.report(name_of(given), problems, pairs.rows.__getitem__)
        values = parsed.values if parsed.missing is None else np.where(parsed.missing, 1.0, parsed.values)
        return in_row(pairs.keys, pairs.rows), values, pairs.rows
