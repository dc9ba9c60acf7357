"""Records by name: how a config file, a dict or JSON becomes an object, exactly, and back.

A *record* is a frozen dataclass registered under a name. Schedules, dense optimizers, losses and metrics each
keep one `Registry`; a user's own record is registered the same way as the shipped ones.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R", bound=type[Any])


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The tail of an error message: the nearest valid name, and all of them.

    >>> nearest("adm", ["adam", "sgd"])
    "did you mean 'adam'? Valid names: adam, sgd"
    """
    valid = sorted(candidates)
    close = difflib.get_close_matches(name, valid, n=1)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"{hint}Valid names: {', '.join(valid) or 'none'}"


class Registry(Generic[T]):
    """Named frozen dataclasses of one kind (``T``), with exact conversion to and from dict, JSON and YAML.

    >>> shapes = Registry[object]("shape")
    >>> @shapes.register("square")
    ... @dataclasses.dataclass(frozen=True)
    ... class Square:
    ...     side: float = 1.0
    >>> shapes.to_dict(shapes.make("square", side=2.0))
    {'name': 'square', 'side': 2.0}
    >>> shapes.from_json('{"name": "square", "side": 3.0}')
    Square(side=3.0)
    """

    def __init__(self, kind: str) -> None:
        """``kind`` is the word that error messages use, such as "schedule"."""
        self.kind = kind
        self._records: dict[str, type[T]] = {}

    def register(self, name: str) -> Callable[[R], R]:
        """Class decorator: registers a frozen dataclass under ``name``."""

        def decorate(cls: R) -> R:
            if not dataclasses.is_dataclass(cls):
                raise TypeError(
                    f"{self.kind} '{name}': {cls.__name__} must be a dataclass (frozen=True) to be registered"
                )
            if "name" in {field.name for field in dataclasses.fields(cls)}:
                raise TypeError(f"{self.kind} '{name}': a field may not be called 'name'; the registry uses that word")
            if name in self._records:
                raise ValueError(
                    f"{self.kind} '{name}' is already registered, as {self._records[name].__name__}; "
                    "choose another name"
                )
            self._records[name] = cast("type[T]", cls)
            return cls

        return decorate

    def names(self) -> list[str]:
        """All registered names, sorted."""
        return sorted(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def __getitem__(self, name: str) -> type[T]:
        if name not in self._records:
            raise ValueError(f"unknown {self.kind} '{name}': {nearest(str(name), self._records)}")
        return self._records[name]

    def make(self, name: str, /, **fields: Any) -> T:
        """Builds the record ``name``; a wrong or missing field is named in the error."""
        cls = self[name]
        known = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
        for given in fields:
            if given not in known:
                raise ValueError(f"{self.kind} '{name}' has no field '{given}': {nearest(given, known)}")
        missing = [
            key
            for key, field in known.items()
            if key not in fields
            and field.default is dataclasses.MISSING
            and field.default_factory is dataclasses.MISSING
        ]
        if missing:
            raise ValueError(f"{self.kind} '{name}' needs the field{'s' * (len(missing) > 1)} {', '.join(missing)}")
        return cls(**{key: self._revived(_freeze(value)) for key, value in fields.items()})

    def _revived(self, value: Any) -> Any:
        """The value; a mapping with a name becomes the record of that name."""
        is_record = isinstance(value, Mapping) and isinstance(value.get("name"), str)
        return self.from_dict(value) if is_record else value

    def name_of(self, record: T) -> str:
        """The name that ``record``'s class is registered under."""
        for name, cls in self._records.items():
            if type(record) is cls:
                return name
        raise TypeError(f"{type(record).__name__} is not a registered {self.kind}")

    def to_dict(self, record: T) -> dict[str, Any]:
        """``{"name": ..., **fields}``, of plain values only; records inside of it are mappings too."""
        return {"name": self.name_of(record), **self._fields(record, f"{self.kind} '{self.name_of(record)}'")}

    def _fields(self, record: Any, where: str) -> dict[str, Any]:
        names = [field.name for field in dataclasses.fields(record)]
        return {name: self._plain(getattr(record, name), f"{where}.{name}") for name in names}

    def _plain(self, value: Any, where: str) -> Any:
        if isinstance(value, bool | int | float | str) or value is None:
            return value
        if isinstance(value, list | tuple):
            return [self._plain(item, where) for item in value]
        if isinstance(value, Mapping):
            return {str(key): self._plain(item, where) for key, item in value.items()}
        if type(value) in self._records.values():
            return self.to_dict(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._fields(value, where)
        raise TypeError(f"{where} is {value!r}, which cannot be written to a config; use numbers, names or lists")

    def from_dict(self, data: Mapping[str, Any]) -> T:
        """The inverse of `to_dict`."""
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise ValueError(f"a {self.kind} is written as a mapping with a 'name', got {data!r}")
        return self.make(data["name"], **{key: value for key, value in data.items() if key != "name"})

    def to_json(self, record: T) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(record), indent=2)

    def from_json(self, text: str) -> T:
        """The inverse of `to_json`."""
        return self.from_dict(json.loads(text))

    def to_yaml(self, record: T) -> str:
        """`to_dict` as YAML text."""
        import yaml

        return yaml.safe_dump(self.to_dict(record), sort_keys=False)

    def from_yaml(self, text: str) -> T:
        """The inverse of `to_yaml`. Numbers such as ``1e-3`` are numbers, as in JSON."""
        return self.from_dict(load_yaml(text))


def load_yaml(text: str) -> Any:
    """Read YAML with JSON's idea of a number: ``1e-3`` is 0.001, not the string "1e-3" as in YAML 1.1."""
    import yaml

    return yaml.load(text, yaml_loader())


@functools.cache
def yaml_loader() -> Any:
    """Return the loader class that `load_yaml` uses."""
    import re

    import yaml

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"),
        list("-+0123456789."),
    )
    return Loader


def _freeze(value: Any) -> Any:
    """Lists from a file become tuples: a record stays hashable and equal to the one written by hand."""
    return tuple(map(_freeze, value)) if isinstance(value, list | tuple) else value
