"""`Computed`: a column that is computed from others; `Constant`: one that is the same in every row."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from sparrow import fields
from sparrow.data.errors import Problems
from sparrow.data.values import holds_values
from sparrow.registry import Registry, fields_of

C = TypeVar("C", bound="type[Computed]")


class Computed(abc.ABC):
    """A column computed from others, as the field ``compute`` of a feature.

    A record is a frozen dataclass; its inputs are columns of the data or computed themselves (`Column`).

    Attributes:
      may_be_lists: whether an input without a type, of missing values alone, may be one of lists.
    """

    may_be_lists: ClassVar[bool] = False

    def __post_init__(self) -> None:
        fields.check(self)
        for name, field in fields_of(type(self)).items():
            given, may_be_none = getattr(self, name), not field.required and field.default is None
            is_input = name in _inputs_of(type(self)) and not isinstance(given, Computed)
            if (is_input or name.endswith("separator")) and not (given is None and may_be_none):
                fields.string(f"{type(self).__name__}.{name}", given)

    @property
    def inputs(self) -> tuple[Column, ...]:
        """The inputs, in the order that they are computed in: by default its fields of the type `Column`."""
        if not (names := _inputs_of(type(self))):
            raise TypeError(f"{type(self).__name__} has no field of the type Column; define its property 'inputs'")
        return tuple(given for name in names if (given := getattr(self, name)) is not None)

    @abc.abstractmethod
    def compute(self, columns: Any, problems: Problems) -> Any:
        """Return an Arrow array with a value or a list for each row of a record batch.

        Rows that cannot be used are added to ``problems``; their values do not matter.
        """

    @property
    def columns(self) -> tuple[str, ...]:
        parts = [(given,) if isinstance(given, str) else given.columns for given in self.inputs]
        return tuple(dict.fromkeys(name for part in parts for name in part))

    def refuse(self, column: str, kind: Any) -> str | None:
        """Return the sentence on a column whose Arrow type ``kind`` cannot be read; None: it can."""
        for given in self.inputs:
            if isinstance(given, str):
                why = self.refuse_input(column, kind) if given == column else None
            else:
                why = given.refuse(column, kind) if column in given.columns else None
            if why is not None:
                return why
        return None

    def refuse_input(self, column: str, kind: Any) -> str | None:
        """Return the sentence on a type of one of its own inputs. By default numbers, strings and lists are read."""
        if holds_values(kind):
            return None
        return f"{self.words} numbers, strings or lists of them, the column holds {kind}"

    @property
    def words(self) -> str:
        """The beginning of a sentence about its inputs."""
        return f"'{registry.name_of(self)}' reads"

    def holds(self, column: str) -> str:
        """Return the values that ``column`` must hold, in words."""
        for given in self.inputs:
            if isinstance(given, str):
                if given == column:
                    return self.holds_input(column)
            elif column in given.columns:
                return given.holds(column)
        return "values"

    def holds_input(self, column: str) -> str:
        """Return the values that one of its own inputs must hold, in words."""
        return "numbers or strings, or lists of them"

    def is_single(self, column: str) -> bool:
        """Return whether a missing value of ``column`` is one missing value instead of a missing list."""
        return not self.may_be_lists


Column = str | Computed
"""An input: a column of the data by its name, or a computed one."""

registry: Registry[Computed] = Registry("computed column", Computed)
"""Computed columns by name."""


def register_computed(name: str) -> Callable[[C], C]:
    """Return a class decorator that registers a custom computed column under ``name``, for config files too."""
    return registry.register(name)


@functools.cache
def _inputs_of(cls: type[Computed]) -> tuple[str, ...]:
    """Return the fields of a record that are inputs."""
    return tuple(name for name, field in fields_of(cls).items() if field.hint in (Column, Column | None, Computed))


def column_of(given: Column, columns: Any, problems: Problems) -> Any:
    """Return the Arrow array of an input."""
    return columns.column(given) if isinstance(given, str) else given.compute(columns, problems)


def name_of(given: Column) -> str:
    """Return the name of an input in errors."""
    return given if isinstance(given, str) else next(iter(given.columns), "a constant")


@register_computed("constant")
@dataclasses.dataclass(frozen=True)
class Constant(Computed):
    """The same number or string in every row.

    >>> Constant(7).compute(pa.RecordBatch.from_pydict({"a": [1, 2]}), Problems(2)).to_pylist()
    [7, 7]

    Attributes:
      value: the number or string.
    """

    value: int | float | str

    @property
    def inputs(self) -> tuple[Column, ...]:
        return ()

    def compute(self, columns: Any, problems: Problems) -> Any:
        return pa.repeat(self.value, columns.num_rows)
