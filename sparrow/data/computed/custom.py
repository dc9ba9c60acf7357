"""`Custom`: a column computed by a Python function of your own, which a config names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa

from sparrow.data.computed.base import Column, Computed, column_of, register_computed
from sparrow.data.errors import DataError, Problems
from sparrow.registry import nearest

F = TypeVar("F", bound=Callable[..., Any])

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {}
"""Functions by name."""


def register_function(name: str) -> Callable[[F], F]:
    """Return a decorator that makes a function known to `Custom`, and so to config files, under ``name``.

    The function gets the columns as Arrow arrays and the options as keywords; it returns a value or a list for each
    row.

    >>> @register_function("length")
    ... def length(texts, scale=1):
    ...     return [None if text is None else scale * len(text) for text in texts.to_pylist()]
    >>> batch = pa.RecordBatch.from_pydict({"title": ["abc", None]})
    >>> Custom("length", ("title",), options={"scale": 2}).compute(batch, Problems(2)).to_pylist()
    [6, None]
    """

    def decorate(function: F) -> F:
        if not callable(function):
            raise TypeError(f"function '{name}': {function!r} cannot be called")
        if name in FUNCTIONS:
            raise ValueError(f"function '{name}' is already registered; choose another name")
        FUNCTIONS[name] = function
        return function

    return decorate


@register_computed("custom")
@dataclasses.dataclass(frozen=True)
class Custom(Computed):
    """A column computed by a function that `register_function` made known.

    Its code must be imported first (``--import``), also where an exported model is served: a config or an export never
    causes code to be imported.

    Attributes:
      function: the name of the function.
      arguments: the columns that it gets.
      options: further arguments, by name.
    """

    function: str
    arguments: tuple[Column, ...]
    _: dataclasses.KW_ONLY
    options: Mapping[str, bool | int | float | str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            known = nearest(self.function, FUNCTIONS) if FUNCTIONS else "none is registered"
            raise ValueError(
                f"unknown function '{self.function}': {known}; import the file that registers it, with --import"
            )
        if not self.arguments:
            raise ValueError(f"function '{self.function}': arguments must name at least one column")

    @property
    def inputs(self) -> tuple[Column, ...]:
        return self.arguments

    def refuse_input(self, column: str, kind: Any) -> str | None:
        return None

    def holds_input(self, column: str) -> str:
        return f"as the function '{self.function}' reads it"

    def compute(self, columns: Any, problems: Problems) -> Any:
        given = [column_of(argument, columns, problems) for argument in self.arguments]
        try:
            made = FUNCTIONS[self.function](*given, **self.options)
            made = made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made
            made = made if isinstance(made, pa.Array) else pa.array(made)
        except Exception as error:
            where = f"the function '{self.function}'"
            raise DataError(f"{where} failed: {type(error).__name__}: {error}") from error
        if len(made) != columns.num_rows:
            counts = f"{len(made)} values for {columns.num_rows} rows"
            raise DataError(f"the function '{self.function}' returned {counts}; return one each")
        return made
