"""The column that a feature reads: of the data, or computed."""

from __future__ import annotations

from typing import Any

from sparrow.data.computed import Computed
from sparrow.data.errors import Problems


def check_source(where: str, column: str | None, compute: Computed | None) -> None:
    """Raise ValueError where a feature has both."""
    if column is not None and compute is not None:
        raise ValueError(f"{where}: column and compute exclude each other; keep one")


def source_column(name: str, compute: Computed | None, columns: Any, problems: Problems) -> Any:
    """Return the Arrow array of the column ``name``, or the computed one."""
    return columns.column(name) if compute is None else compute.compute(columns, problems)
