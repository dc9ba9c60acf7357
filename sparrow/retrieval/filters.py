"""Filters of items by their attributes: a value, a list of values, or a range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sparrow.registry import nearest

Where = Mapping[str, Any]
"""By attribute: a value, a list of allowed values, or a range ``{"min": ..., "max": ...}``, both ends included."""


def passing(attributes: Any, where: Where) -> npt.NDArray[np.bool_]:
    """Return which items pass all conditions. An item without a value passes none; of a list, one value suffices.

    >>> items = pa.table({"genre": ["drama", "crime", None], "year": [1990, 2001, 2010]})
    >>> passing(items, {"genre": ["crime", "drama"], "year": {"min": 1995}}).tolist()
    [False, True, False]
    """
    mask = np.ones(attributes.num_rows, np.bool_)
    for name, condition in where.items():
        if name not in attributes.column_names:
            raise ValueError(f"items have no attribute '{name}': {nearest(name, attributes.column_names)}")
        mask &= _meets(name, attributes[name].combine_chunks(), condition)
    return mask


def _meets(name: str, column: Any, condition: Any) -> npt.NDArray[np.bool_]:
    if not _is_list(column.type):
        return _values_meet(name, column, condition)
    met = np.zeros(len(column), np.bool_)
    met[pc.list_parent_indices(column).to_numpy()[_values_meet(name, column.flatten(), condition)]] = True
    return met


def _values_meet(name: str, values: Any, condition: Any) -> npt.NDArray[np.bool_]:
    try:
        if isinstance(condition, Mapping):
            if not condition or set(condition) - {"min", "max"}:
                raise ValueError(f"a range of '{name}' is {{'min': ..., 'max': ...}}, got {dict(condition)}")
            met = pc.is_valid(values)
            if "min" in condition:
                met = pc.and_(met, pc.greater_equal(values, pa.scalar(condition["min"])))
            if "max" in condition:
                met = pc.and_(met, pc.less_equal(values, pa.scalar(condition["max"])))
        else:
            wanted = condition if isinstance(condition, list | tuple | set) else [condition]
            met = pc.and_(pc.is_valid(values), pc.is_in(values, value_set=pa.array(list(wanted), values.type)))
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise ValueError(f"attribute '{name}' holds {values.type}: {str(error).splitlines()[0]}") from None
    made: npt.NDArray[np.bool_] = pc.fill_null(met, False).to_numpy(zero_copy_only=False)
    return made


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
