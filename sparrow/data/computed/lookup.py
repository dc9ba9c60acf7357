"""`Lookup`: the values that keys have in a map of the same row."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparrow import fields
from sparrow.data.computed.base import Column, Computed, check_inputs, check_strings, column_of, register_computed
from sparrow.data.computed.pairs import (
    COMBINERS,
    combined,
    find_keys,
    listed,
    read_keys,
    read_pairs,
    refuse_pairs,
    rows_of_entries,
    texts_of,
)
from sparrow.data.errors import Problems
from sparrow.data.values import flatten


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
    combiner: Literal["sum", "mean", "min", "max", "count"] | None = "sum"
    with_key: bool = False

    def __post_init__(self) -> None:
        check_inputs(self, "map", "key")
        check_strings(self, "separator", "map_separator", "pair_separator", "value_separator")
        if self.combiner is not None:
            fields.choice("Lookup.combiner", self.combiner, COMBINERS)
            if self.with_key or self.value_separator is not None:
                raise ValueError("Lookup: with_key and value_separator need a combiner of null")

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.map, self.key)

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
            name = self.map if isinstance(self.map, str) else self.columns[0]
            return combined(values, rows, count, self.combiner, name, problems)
        if self.value_separator is not None:
            flat = flatten(texts_of(values), self.value_separator)
            inner = rows_of_entries(flat)
            keys, rows, values = keys.take(pa.array(inner)), rows[inner], flat.entries
        if self.with_key:
            values = pc.binary_join_element_wise(keys, texts_of(values), "_")
        return listed(values, rows, count)
