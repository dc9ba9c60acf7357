"""`PlainLookups`: lookups of one id a row, without Python's work on each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sparrow.kernels.quantized import described, fill_rows
from sparrow.serving.lookup import Table
from sparrow.serving.packed import Span

Array = npt.NDArray[Any]
IDS: Final = 4
"""The place of the row of ids in a lookup that is `described`."""


class _Lookup(NamedTuple):
    name: str
    feature: int  # its row in the matrix of ids
    table: Table
    place: Span


class PlainLookups:
    """Lookups in tables of any dtype, for the features that have one id in every row of a batch."""

    def __init__(self, tables: Mapping[str, Table], features: Mapping[str, str], places: Mapping[str, Span]) -> None:
        """Take the table, the feature and the place of each lookup, by its name."""
        rows: dict[str, int] = {}
        for name, table in tables.items():
            feature = features[name]
            rows[feature] = min(len(table), rows.get(feature, len(table)))
        self._features, self._rows = list(rows), np.array(list(rows.values()), np.uint32)[:, None]
        self._lookups = [
            _Lookup(name, self._features.index(features[name]), table, places[name]) for name, table in tables.items()
        ]
        self._names = [lookup.name for lookup in self._lookups]
        described_ = [described(table, feature, place.start) for _, feature, table, place in self._lookups]
        self._described = np.array(described_, np.int64).reshape(-1, 6)

    def fill(self, ids: Mapping[str, Any], inputs: Array) -> Sequence[str]:
        """Write the rows of features whose ids are plain and in range. Return the names of the lookups made."""
        given = [ids.get(name) for name in self._features]
        plain = [i for i, values in enumerate(given) if _is_plain(values)]
        if not plain:
            return ()
        matrix: npt.NDArray[np.int32] = np.array([given[i] for i in plain])  # (features, rows)
        # Read as unsigned, a negative id is a huge one.
        fit = np.all(matrix.view(np.uint32) < self._rows[plain], axis=1)
        lookups, made = self._described, self._names
        if len(plain) < len(given) or not fit.all():
            places = {feature: place for place, feature in enumerate(plain) if fit[place]}
            kept = [i for i, lookup in enumerate(self._lookups) if lookup.feature in places]
            lookups, made = lookups[kept], [made[i] for i in kept]
            lookups[:, IDS] = [places[self._lookups[i].feature] for i in kept]
        if not fill_rows(lookups, matrix, inputs):
            for name, _, table, place in self._lookups:
                if name in made:
                    own = matrix[lookups[made.index(name), IDS]]
                    inputs[: len(own), place.start : place.stop] = table.take(own, axis=0)
        return made


def _is_plain(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype == np.int32 and values.ndim == 1
