"""`Match`: the values that pairs of keys have in a map of maps of the same row."""

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
    in_row,
    listed,
    read_keys,
    read_pairs,
    rows_of_entries,
    texts_of,
)
from sparrow.data.errors import Problems
from sparrow.data.values import cut_at_first, element_type, flatten, is_list, is_text

OUTER, INNER, OUTER_KEY, INNER_KEY = "|", ",", "^", ":"


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
    combiner: Literal["sum", "mean", "min", "max", "count"] | None = "sum"
    show_pkey: bool = False
    show_skey: bool = False

    def __post_init__(self) -> None:
        check_inputs(self, "nested_map", *(name for name in ("pkey", "skey") if getattr(self, name) is not None))
        check_strings(self, "separator")
        if self.combiner is not None:
            fields.choice("Match.combiner", self.combiner, COMBINERS)
            if self.show_pkey or self.show_skey:
                raise ValueError("Match: show_pkey and show_skey need a combiner of null")

    @property
    def inputs(self) -> tuple[Column, ...]:
        return (self.nested_map, *(key for key in (self.pkey, self.skey) if key is not None))

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
        at = rows_of_entries(inner)
        first, rows = outer.keys.take(pa.array(at)), outer.rows[at]
        second, values = cut_at_first(texts_of(inner.entries), INNER_KEY)
        chosen = np.ones(len(rows), np.bool_)
        for keys, wanted in ((first, self.pkey), (second, self.skey)):
            if wanted is not None:
                given = read_keys(column_of(wanted, columns, problems), self.separator)
                chosen &= np.isin(in_row(keys, rows), in_row(*given))
        there = pa.array(np.flatnonzero(chosen))
        first, second, values, rows = first.take(there), second.take(there), values.take(there), rows[chosen]
        if self.combiner is not None:
            return combined(values, rows, count, self.combiner, self.columns[0], problems)
        shown = [keys for keys, is_shown in ((first, self.show_pkey), (second, self.show_skey)) if is_shown]
        return listed(pc.binary_join_element_wise(*shown, values, "_") if shown else values, rows, count)
