"""`Registry`: records by name, and as YAML."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast

from sparrow.errors import ConfigError, Problem, shown
from sparrow.registry.reading import REGISTRIES, freeze, make, read, written_fields
from sparrow.registry.synonyms import answering, nearest

T = TypeVar("T")
R = TypeVar("R", bound=type[Any])

FUNCTIONS: Final[Any] = collections.abc.Callable
"""The base of a registry whose records stand for functions."""


class Registry(Generic[T]):
    """Named frozen dataclasses of one kind (``T``), with exact conversion to and from dict, JSON and YAML.

    >>> class Shape: ...
    >>> shapes = Registry[Shape]("shape", Shape)
    >>> @shapes.register("square")
    ... @dataclasses.dataclass(frozen=True)
    ... class Square(Shape):
    ...     side: float = 1.0
    >>> shapes.to_dict(shapes.make("square", side=2.0))
    {'name': 'square', 'side': 2.0}
    >>> shapes.from_json('{"name": "square", "side": 3.0}')
    Square(side=3.0)
    """

    def __init__(
        self, kind: str, base: Any, key: str = "name", descriptions: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Make an empty registry.

        Args:
          kind: the word that error messages use, such as "schedule".
          base: the class that all records derive from; a field of that type holds one of them. `FUNCTIONS`: records
            are functions.
          key: the field of a mapping that holds the name of the record.
          descriptions: descriptions of fields that many records have; a record's docstring comes before it.
        """
        self.kind, self.base, self.key, self.descriptions = kind, base, key, descriptions
        self._records: dict[str, type[T]] = {}
        REGISTRIES.append(self)

    def register(self, name: str) -> Callable[[R], R]:
        """Return a class decorator that registers a frozen dataclass under ``name``."""

        def decorate(cls: R) -> R:
            is_open = self.base is FUNCTIONS or getattr(self.base, "_is_protocol", False)
            if not is_open and self.base not in cls.__mro__:
                raise TypeError(f"{self.kind} '{name}': {cls.__name__} must be a subclass of {self.base.__name__}")
            if not dataclasses.is_dataclass(cls):
                raise TypeError(
                    f"{self.kind} '{name}': {cls.__name__} must be a dataclass (frozen=True) to be registered"
                )
            if self.key in {field.name for field in dataclasses.fields(cls)}:
                raise TypeError(
                    f"{self.kind} '{name}': a field may not be called '{self.key}'; the registry uses that word"
                )
            if name in self._records:
                raise ValueError(
                    f"{self.kind} '{name}' is already registered, as {self._records[name].__name__}; "
                    "choose another name"
                )
            self._records[name] = cast("type[T]", cls)
            return answering(cls)

        return decorate

    def names(self) -> list[str]:
        """Return all registered names, sorted."""
        return sorted(self._records)

    def classes(self) -> list[type[T]]:
        """Return the classes of all registered records, by name."""
        return [self._records[name] for name in self.names()]

    def __contains__(self, name: object) -> bool:
        return name in self._records.values() if isinstance(name, type) else name in self._records

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._records:
            raise ValueError(f"unknown {self.kind} '{name}': {nearest(str(name), self._records)}")
        return self._records[name]

    def name_of(self, record: T) -> str:
        """Return the name that ``record``'s class is registered under."""
        for name, cls in self._records.items():
            if type(record) is cls:
                return name
        raise TypeError(f"{type(record).__name__} is not a registered {self.kind}")

    def holds(self, value: Any) -> bool:
        """Return whether ``value`` is a record of this kind, registered or not."""
        return isinstance(value, self.base) and not isinstance(value, type)

    def read(self, value: Any) -> T:
        """Return the record of a mapping with a name and fields, or of a name alone; a record is returned unchanged.

        Raises `ConfigError` with the path of each problem, for the enclosing config.
        """
        return cast("T", read(self.base, value))

    def from_fields(self, value: Mapping[str, Any]) -> T:
        """Return the record of a mapping with a name and fields, or raise as `read` does."""
        name = value.get(self.key)
        if not isinstance(name, str):
            raise ConfigError(f"a {self.kind} needs a '{self.key}'. Valid names: {', '.join(self.names())}")
        if name not in self:
            raise ConfigError([Problem((self.key,), f"unknown {self.kind} {name!r}: {nearest(name, self.names())}")])
        fields = {field: item for field, item in value.items() if field != self.key}
        return cast("T", make(self[name], fields, [self.key]))

    def make(self, name: str, /, **fields: Any) -> T:
        """Return the record ``name``, or raise an error that names each wrong or missing field."""
        try:
            return cast("T", make(self[name], freeze(fields), [self.key]))
        except ConfigError as error:
            by_itself = all(not problem.path for problem in error.problems)  # the record's own message names it
            raise ConfigError(error.problems, None if by_itself else f"{self.kind} '{name}'") from None

    def from_dict(self, data: Mapping[str, Any]) -> T:
        """Return the record of a mapping from `to_dict`."""
        if not isinstance(data, Mapping) or not isinstance(data.get(self.key), str):
            raise ValueError(f"a {self.kind} is written as a mapping with a '{self.key}', got {shown(data)}")
        return self.make(data[self.key], **{key: value for key, value in data.items() if key != self.key})

    def to_dict(self, record: T) -> dict[str, Any]:
        """Return ``{"name": ..., **fields}``, of plain values only; records inside of it are mappings or names."""
        name = self.name_of(record)
        return {self.key: name, **written_fields(record, defaults=True, where=f"{self.kind} '{name}'")}

    def to_json(self, record: T) -> str:
        """Return `to_dict` as a JSON string."""
        return json.dumps(self.to_dict(record), indent=2)

    def from_json(self, text: str) -> T:
        """Return the record of a string from `to_json`."""
        return self.from_dict(json.loads(text))

    def to_yaml(self, record: T) -> str:
        """Return `to_dict` as a YAML string."""
        return dump_yaml(self.to_dict(record))

    def from_yaml(self, text: str) -> T:
        """Return the record of a string from `to_yaml`. Numbers such as ``1e-3`` are numbers, as in JSON."""
        return self.from_dict(load_yaml(text))


def load_yaml(text: str) -> Any:
    """Read YAML with JSON's idea of a number: ``1e-3`` is 0.001, not the string "1e-3" as in YAML 1.1."""
    import yaml

    return yaml.load(text, yaml_classes()[0])


def dump_yaml(value: Any, **options: Any) -> str:
    """Return the YAML that `load_yaml` reads as ``value``; ``options``: those of ``yaml.dump``.

    >>> print(dump_yaml(["1e5", 1e5], default_flow_style=True))
    ['1e5', 100000.0]
    """
    import yaml

    made: str = yaml.dump(value, Dumper=yaml_classes()[1], sort_keys=False, allow_unicode=True, **options)
    return made


@functools.cache
def yaml_classes() -> tuple[Any, Any]:
    """Return the loader of `load_yaml` and the dumper of `dump_yaml`."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def represent_str(self, data: str) -> Any:
            return self.represent_scalar("tag:yaml.org,2002:str", data, None if data.isprintable() else '"')

    number = re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$")
    for cls in (Loader, Dumper):
        cls.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+.0123456789"))
    Dumper.add_representer(str, Dumper.represent_str)
    return Loader, Dumper
