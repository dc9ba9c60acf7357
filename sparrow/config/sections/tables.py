"""``model.tables`` of a config: initial values, precision and limits of tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from pydantic import model_validator

from sparrow import dense
from sparrow.config.loading.records import InitializerRecord
from sparrow.config.loading.section import Section
from sparrow.config.sections.train import Name, Names
from sparrow.embedding import HostMemory
from sparrow.errors import ConfigError, Problem


class HostMemoryOptions(Section):
    """Rows and slots in host memory, with a cache on the device."""

    kind: Literal["host"]
    """The place of the rows: "host"."""
    cache: int | float = 0.1
    """The rows on the device: a share above 0 and up to 1.0, or an integer number of rows."""
    path: Name | None = None
    """A folder for the rows, which are then in scratch files. Default: in memory."""

    @model_validator(mode="after")
    def _check(self) -> HostMemoryOptions:
        self.record()
        return self

    def record(self) -> HostMemory:
        """Return the record of `sparrow.TableSpec`."""
        return HostMemory(cache=self.cache, path=self.path)


class TableOptions(Section):
    """How some tables are kept, and what they start from."""

    tables: Names
    """Regular expressions that match whole names of tables; a plain name matches itself."""
    initializer: InitializerRecord | None = None
    """The initial values. Default: uniform within ±1/√rows."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """The precision that they are kept in; updates are always computed in float32."""
    stochastic_rounding: bool = True
    """Whether a table of 16 bits is written with seeded stochastic rounding, or to nearest."""
    min_value: float | None = None
    """The lower limit that updated rows are clamped to."""
    max_value: float | None = None
    """The upper limit."""
    memory: HostMemoryOptions | None = None
    """Host memory for tables that are larger than the device's. Default: all rows are on the device."""

    @model_validator(mode="after")
    def _check(self) -> TableOptions:
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ValueError(f"min_value {self.min_value:g} is above max_value {self.max_value:g}")
        return self

    def fields(self) -> dict[str, Any]:
        """Return the fields of `sparrow.TableSpec` that it sets."""
        held = {name: getattr(self, name) for name in type(self).model_fields if name != "tables"}
        return held | {"memory": None if self.memory is None else self.memory.record()}


def table_options(entries: tuple[TableOptions, ...], tables: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the options of each table that has some.

    A pattern that matches no table, and a table that two entries match, are errors that list the tables.
    """
    try:
        assigned = dense.assign([entry.tables for entry in entries], tables)
    except ValueError as error:
        raise ConfigError([Problem(("model", "tables"), str(error))]) from None
    return {table: entries[index].fields() for table, index in assigned.items() if index is not None}
