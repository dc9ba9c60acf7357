"""Types for columns without values: a request of a few rows often has some, a file hardly ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sparrow.data import Feature


def with_types(table: Any, features: Sequence[Feature]) -> Any:
    """Return the table with strings, which every feature reads, for each column of missing values or empty lists.

    >>> from sparrow.data import IdFeature
    >>> table = pa.table({"item": [None], "seen": [[]]})
    >>> features = [IdFeature(name, num_buckets=9, embedding_dim=4) for name in ("item", "seen")]
    >>> [str(field.type) for field in with_types(table, features).schema]
    ['list<item: string>', 'list<item: string>']
    """
    single = {column for feature in features for column in feature.columns if feature.is_single(column)}
    for index, field in enumerate(table.schema):
        if pa.types.is_null(field.type):
            kind = pa.string() if field.name in single else pa.list_(pa.string())
        elif pa.types.is_list(field.type) and pa.types.is_null(field.type.value_type):
            kind = pa.list_(pa.string())
        else:
            continue
        table = table.set_column(index, field.name, table[index].cast(kind))
    return table
