"""From plain values to records, by the types of their fields, and back.

======================================  ==============================================================================
type of the field                       plain value
======================================  ==============================================================================
``bool``, ``int``, ``float``, ``str``   the same; an integer is a number, ``true`` is not
``Literal["a", "b"]``                   one of the values
``X | Y``, ``X | None``                 either
``tuple[X, ...]``, ``Sequence[X]``      a list
``Mapping[str, X]``                     a mapping
``Annotated[X, Bounds(...)]``           a value of X within the bounds; with `NOT_EMPTY`, one that is not empty
a dataclass                             a mapping of its fields
the base of a `Registry`                a mapping with the name of a record and its fields, or the name alone
a function                              a schedule, as a mapping
======================================  ==============================================================================

Objects that have the type already are kept, and arrays may replace numbers: from Python a record may hold values that
no file can. The dataclass is the only source: its fields, their types and their defaults are written nowhere else.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import math
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple

import jax

from sparrow.errors import ConfigError, Path, Problem, shown
from sparrow.registry.synonyms import nearest


class Mismatch(Exception):
    """A value that is not of a type; the message is the words for the type, such as "a number"."""


class Bounds(NamedTuple):
    """The numbers that a field may hold, as part of its type."""

    at_least: float = -math.inf
    above: float = -math.inf
    at_most: float = math.inf
    below: float = math.inf

    def broken_by(self, number: Any) -> str:
        """Return the bounds that a number does not keep, in words."""
        holds = (number >= self.at_least, number > self.above, number <= self.at_most, number < self.below)
        words = zip(("at least", "above", "at most", "below"), self, holds, strict=True)
        return " and ".join(f"{word} {bound}" for word, bound, is_kept in words if not is_kept)


NOT_EMPTY: Final = "not empty"
"""A part of the type of a string, a list or a mapping that must hold something."""


def read(hint: Any, value: Any) -> Any:
    """Return the ``value`` as a field of type ``hint`` holds it, or raise `ConfigError` with all problems.

    >>> read(tuple[int, ...] | None, [1, 2])
    (1, 2)
    >>> read(tuple[int, ...] | None, "12")
    Traceback (most recent call last):
    sparrow.errors.ConfigError: must be a list, got '12'
    """
    try:
        return _read(hint, value)
    except Mismatch as wanted:
        raise ConfigError(f"must be {wanted}, got {shown(value)}") from None


def _read(hint: Any, value: Any) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _read_union(arguments, value)
    if origin is Annotated:
        return _read_limited(arguments[0], arguments[1], value)
    if origin is typing.Literal:
        return _read_literal(arguments, value)
    if origin in (tuple, collections.abc.Sequence, list):
        made = _read_list(arguments, value)
        return list(made) if origin is list else made
    if origin in (dict, collections.abc.Mapping):
        return _read_mapping(arguments, value)
    if (registry := registry_of(hint)) is not None:
        return _read_record(registry, value)
    if hint in _SCALARS:
        is_array = hint is not type(None) and hasattr(value, "dtype") and not isinstance(value, int | float | str)
        return value if is_array else _read_scalar(hint, value)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _read_dataclass(hint, value)
    return value


def make(cls: type[Any], fields: Mapping[str, Any], others: Iterable[str] = ()) -> Any:
    """Return the dataclass ``cls`` of plain ``fields``; ``others`` are further valid names in a file, for errors."""
    values = read_fields(cls, fields, others)
    try:
        return cls(**values)
    except ConfigError:
        raise
    except (ValueError, TypeError) as error:  # a check of the record's own
        raise ConfigError(str(error)) from None


def read_fields(cls: type[Any], fields: Mapping[str, Any], others: Iterable[str] = ()) -> dict[str, Any]:
    """Return the plain ``fields`` of a dataclass as it holds them, or raise `ConfigError` with all problems."""
    known = fields_of(cls)
    unknown = [name for name in fields if name not in known]
    found = [Problem((name,), f"unknown field: {nearest(str(name), [*others, *known])}") for name in unknown]
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name not in fields:
            found += [Problem((name,), "is required")] * field.required
            continue
        try:
            values[name] = read(field.hint, fields[name])
        except ConfigError as error:
            found += [problem.under((name,)) for problem in error.problems]
    if found:
        raise ConfigError(found)
    return values


@dataclasses.dataclass(frozen=True)
class RecordField:
    """A field of a dataclass: its type, and its default where it is not required."""

    hint: Any
    required: bool
    default: Any = None


def fields_of(cls: type[Any]) -> dict[str, RecordField]:
    """Return the fields that a mapping may give, by name."""
    try:
        hints = _hints(cls)  # type: ignore[arg-type]
    except NameError as error:
        raise TypeError(
            f"the type of a field of {cls.__name__} is not known: {error}; define it at the top of the module"
        ) from None
    found = {}
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        missing = default is dataclasses.MISSING
        found[field.name] = RecordField(hints[field.name], missing, None if missing else default)
    return found


@functools.cache
def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls, include_extras=hasattr(cls, "as_fields"))  # others check their own bounds


def freeze(value: Any, path: Path = ()) -> Any:
    """Return the value with tuples for lists and plain dicts for mappings, whose keys must be strings.

    Records stay hashable, and equal to records written by hand.
    """
    if isinstance(value, list | tuple):
        return tuple(freeze(item, (*path, index)) for index, item in enumerate(value))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                problem = Problem(path, f"a field's name must be a string, got {shown(key)}; put it in quotes")
                raise ConfigError([problem])
        return {key: freeze(item, (*path, key)) for key, item in value.items()}
    return value


# --- registries, by the base of their records ------------------------------------------------------------------------

REGISTRIES: Final[list[Any]] = []
"""All registries."""


def registry_of(hint: Any) -> Any:
    """Return the registry of the records that a field of type ``hint`` holds; None where it holds no record."""
    cls = typing.get_origin(hint) or hint
    for registry in REGISTRIES:
        if cls is registry.base or (
            registry.base is not collections.abc.Callable and isinstance(cls, type) and issubclass(cls, registry.base)
        ):
            return registry
    return None


# --- one kind of type each -------------------------------------------------------------------------------------------


_SCALARS: Final[Mapping[Any, str]] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    type(None): "left out",
}


def _read_scalar(kind: Any, value: Any) -> Any:
    is_of_kind = isinstance(value, int | float if kind is float else kind)
    if not is_of_kind or (isinstance(value, bool) and kind is not bool):
        raise Mismatch(_SCALARS[kind])
    if kind is not float:
        return value
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):  # it is a number: no other type of the field will take it
        raise ConfigError(f"must be a finite number, got {shown(value)}")
    return number


def _read_limited(hint: Any, limit: Any, value: Any) -> Any:
    made = _read(hint, value)
    if limit == NOT_EMPTY and not made:
        raise ConfigError("must not be empty")
    if isinstance(limit, Bounds) and (broken := limit.broken_by(made)):
        raise Mismatch(broken)
    return made


def _read_literal(choices: tuple[Any, ...], value: Any) -> Any:
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        *others, last = map(repr, choices)
        raise Mismatch(f"{', '.join(others)} or {last}" if others else last)
    return value


def _read_union(members: tuple[Any, ...], value: Any) -> Any:
    if value is None and type(None) in members:
        return None
    wanted = []
    for member in members:
        if member is jax.Array:
            if isinstance(value, jax.Array):
                return value
        elif member is not type(None):
            try:
                return _read(member, value)
            except Mismatch as mismatch:
                wanted.append(str(mismatch))
    raise Mismatch(" or ".join(dict.fromkeys(wanted)))


def _read_list(items: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise Mismatch("a list")
    if len(items) == 1 or items[-1] is ...:
        items = items[:1] * len(value)
    elif len(items) != len(value):
        raise Mismatch(f"a list of {len(items)}")
    return tuple(_each(dict(enumerate(zip(items, value, strict=True)))).values())


def _read_mapping(hints: tuple[Any, ...], value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Mismatch("a mapping of names to values")
    _each({key: (hints[0], key) for key in value})
    return _each({key: (hints[1], part) for key, part in value.items()})


def _each(parts: Mapping[Any, tuple[Any, Any]]) -> dict[Any, Any]:
    """Read all parts, and raise the problems of all together."""
    made, found = {}, []
    for key, (hint, part) in parts.items():
        try:
            made[key] = read(hint, part)
        except ConfigError as error:
            found += [problem.under((key,)) for problem in error.problems]
    if found:
        raise ConfigError(found)
    return made


def _read_record(registry: Any, value: Any) -> Any:
    alone = registry.base is not collections.abc.Callable  # a schedule has no defaults
    if isinstance(value, str) and alone:
        value = {registry.key: value}
    if isinstance(value, Mapping):
        return registry.from_fields(freeze(value))
    if registry.holds(value):
        return value
    words = f"a {registry.kind} as a mapping with a '{registry.key}'"
    raise Mismatch(f"the name of a {registry.kind}, or {words}" if alone else words)


def _read_dataclass(cls: type[Any], value: Any) -> Any:
    """Return a dataclass; one with a method ``as_fields``, such as a section of a config, reads its fields itself."""
    if isinstance(value, cls):
        return value
    if hasattr(cls, "as_fields"):
        value = cls.as_fields(value)
        if not isinstance(value, Mapping):
            raise Mismatch("a mapping of names to values")
        return cls(**value)
    if not isinstance(value, Mapping):
        raise Mismatch(f"a mapping of fields ({', '.join(fields_of(cls))})")
    return make(cls, value)


# --- from records to plain values -------------------------------------------------------------------------------------


def written(value: Any, defaults: bool = False, where: str = "config") -> Any:
    """Return a section of a config, a record, or any value that it holds, as mappings, lists, strings and numbers.

    Fields that have their default value are left out, unless ``defaults``; a record of defaults alone is its name. A
    value that no file can hold, such as a table in memory, may have a method ``stand_in`` with the record to write; a
    section may have a method ``written``, which changes the form of its fields.
    """
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if hasattr(value, "stand_in"):
        value = value.stand_in()
    if isinstance(value, Mapping):
        return {str(key): written(item, defaults=defaults, where=f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [written(item, defaults=defaults, where=where) for item in value]
    for registry in REGISTRIES:
        if type(value) in registry:
            fields = written_fields(value, defaults=defaults, where=where)
            return {registry.key: registry.name_of(value), **fields} if fields else registry.name_of(value)
    nameless = any(registry.holds(value) for registry in REGISTRIES)
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not nameless:
        fields = written_fields(value, defaults=defaults, where=where)
        return value.written(fields) if hasattr(value, "written") else fields
    raise ConfigError(f"{where} is {shown(value)}, which has no name that a config could hold; register it")


def written_fields(record: Any, *, defaults: bool, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass, by name."""
    fields = {}
    for name, field in fields_of(type(record)).items():
        value = getattr(record, name)
        if defaults or field.required or value != field.default:
            fields[name] = written(value, defaults=defaults, where=f"{where}.{name}")
    return fields
