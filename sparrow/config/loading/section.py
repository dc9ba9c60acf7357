"""`Section`: the base of all parts of a config, whose errors are one sentence each: field, problem, values allowed.

The types of the fields decide how they are read, as those of records do: see `sparrow.registry.reading`. From Python a
record may stand in a field itself, also one without a name (an optax schedule, a table in memory): such a config runs,
and cannot be written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from sparrow.errors import problems_of
from sparrow.registry import fields_of, freeze, read_fields


class Section:
    """A part of a config: typed fields, unknown ones refused, never changed once made.

    Subclasses are frozen dataclasses by themselves. Problems raise a `ConfigError` with one line each, from Python as
    from a file.
    """

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, init=False)(cls)

    def __init__(self, /, **fields: Any) -> None:
        values = read_fields(type(self), self.as_fields(freeze(fields)))
        own: Any = self
        defaults = {name: field.default for name, field in fields_of(type(self)).items()}
        vars(self).update({field.name: field.default for field in dataclasses.fields(own)} | defaults | values)
        with problems_of():
            self._check()

    def _check(self) -> None:
        """Raise ValueError where the fields do not fit together."""

    @classmethod
    def as_fields(cls, value: Any) -> Any:
        """Return the mapping of fields that a value stands for."""
        return value

    def model_copy(self, update: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Return a copy with some fields replaced, which are not checked."""
        made = object.__new__(type(self))
        vars(made).update(vars(self) | dict(update))
        return made
