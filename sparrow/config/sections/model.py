"""The section ``model`` of a config: the architecture, the features that it reads, and their tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from sparrow import dense
from sparrow.config.loading.section import Section
from sparrow.config.sections.train import Count, Name, Names
from sparrow.data import DynamicRows
from sparrow.embedding import HostMemory, Initializer
from sparrow.errors import problems_of
from sparrow.fields import NotNegative
from sparrow.models import ModelRecord
from sparrow.models.sequences import EncoderRecord
from sparrow.registry import NOT_EMPTY, fields_of, nearest


class TableOptions(Section):
    """How some tables are kept, and what they start from."""

    tables: Names
    """Regular expressions that match complete names of tables; a plain name matches itself."""
    initializer: Initializer | None = None
    """The initial values. Default: uniform within ±1/√rows."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    """The precision that they are kept in; updates are always computed in float32."""
    stochastic_rounding: bool = True
    """Whether a table of 16 bits is written with seeded stochastic rounding, or to nearest."""
    min_value: float | None = None
    """The lower limit that updated rows are clamped to."""
    max_value: float | None = None
    """The upper limit."""
    dynamic: DynamicRows | None = None
    """The vocabulary of every feature that reads these tables, instead of ``dynamic`` on each of them; in files."""
    memory: HostMemory | None = None
    """Host memory for tables that are larger than the device's. Default: all rows are on the device."""

    def _check(self) -> None:
        if self.dynamic is not None:
            raise ValueError("dynamic on a table works only in config files; in Python, give it to the features")
        if self.min_value is not None and self.max_value is not None and self.min_value > self.max_value:
            raise ValueError(f"min_value {self.min_value:g} is above max_value {self.max_value:g}")

    def fields(self) -> dict[str, Any]:
        """Return the fields of `sparrow.TableSpec` that it sets."""
        return {name: getattr(self, name) for name in fields_of(type(self)) if name not in ("tables", "dynamic")}


def table_options(entries: tuple[TableOptions, ...], tables: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the options of each table that has some.

    A pattern that matches no table, and a table that two entries match, are errors that list the tables.
    """
    with problems_of("model", "tables"):
        assigned = dense.assign([entry.tables for entry in entries], tables)
    return {table: entries[index].fields() for table, index in assigned.items() if index is not None}


class Model(Section):
    """The architecture, and the groups of features that it reads."""

    architecture: ModelRecord
    """The model's name, or a mapping with its name and options."""
    groups: Annotated[dict[Name, Names], NOT_EMPTY]
    """The names of the features in each group; the architecture defines the groups that it reads."""
    wide_dim: Count = 1
    """The embedding dim of features in a group of their own tables, such as the wide part of Wide & Deep."""
    encoders: dict[Name, tuple[EncoderRecord, ...]] = dataclasses.field(default_factory=dict)
    """Encoders of histories, by the group that their results join; each reads a group of its own, its input."""
    variational_dropout: NotNegative | None = None
    """The strength of variational dropout, which learns the features of each group that the model can do without."""

    tables: tuple[TableOptions, ...] = ()
    """Tables that start from other values, or are kept in another precision."""

    def _check(self) -> None:
        for group, names in self.groups.items():
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ValueError(f"group '{group}' names the feature '{twice}' more than once")
        for group, encoders in self.encoders.items():
            for encoder in encoders:
                if encoder.input not in self.groups:
                    raise ValueError(
                        f"an encoder of '{group}' reads the group '{encoder.input}': "
                        f"{nearest(encoder.input, self.groups)}"
                    )
