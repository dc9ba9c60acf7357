"""From records to plain values: the inverse of `sparrow.registry.reading`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from sparrow.errors import ConfigError, shown
from sparrow.registry.reading import REGISTRIES, fields_of


def written(value: Any, *, defaults: bool = False, where: str = "config") -> Any:
    """Return a record, or any value that it holds, as mappings, lists, strings and numbers.

    Fields that have their default value are left out, unless ``defaults``; a record of defaults alone is its name. A
    value that no file can hold, such as a table in memory, may have a method ``stand_in`` with the record to write.
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
        return written_fields(value, defaults=defaults, where=where)
    raise ConfigError(f"{where} is {shown(value)}, which has no name that a config could hold; register it")


def written_fields(record: Any, *, defaults: bool, where: str) -> dict[str, Any]:
    """Return the fields of a dataclass, by name."""
    fields = {}
    for name, field in fields_of(type(record)).items():
        value = getattr(record, name)
        if defaults or field.required or value != field.default:
            fields[name] = written(value, defaults=defaults, where=f"{where}.{name}")
    return fields
