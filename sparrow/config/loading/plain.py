"""Configs as plain values: what a file holds, and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from sparrow.config.loading.registries import REGISTRIES, key_of
from sparrow.errors import ConfigError, Problem, shown
from sparrow.optimizer import LossScale


def freeze(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """The value with tuples for lists and plain dicts for mappings, whose keys must be texts."""
    if isinstance(value, list | tuple):
        return tuple(freeze(item, (*path, index)) for index, item in enumerate(value))
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ConfigError([Problem(path, f"a field's name must be a text, got {shown(key)}; put it in quotes")])
        return {key: freeze(item, (*path, key)) for key, item in value.items()}
    return value


def plain(value: Any, defaults: bool = False, where: str = "config") -> Any:
    """A section, a record or a value as mappings, lists, texts and numbers: what a file holds.

    Fields that have their default value are left out, unless ``defaults``; a record of defaults alone is its name.
    """
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, BaseModel):
        kept = [
            name
            for name, field in type(value).model_fields.items()
            if defaults or field.is_required() or getattr(value, name) != field.get_default(call_default_factory=True)
        ]
        fields = {name: plain(getattr(value, name), defaults, f"{where}.{name}") for name in kept}
        return value.written(fields) if hasattr(value, "written") else fields
    if isinstance(value, Mapping):
        return {str(key): plain(item, defaults, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, defaults, where) for item in value]
    for registry in REGISTRIES:
        for name in registry.names():
            if type(value) is registry[name]:
                fields = _plain_fields(value, defaults, where)
                return {key_of(registry): name, **fields} if fields else name
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_fields(value, defaults, where) or (True if isinstance(value, LossScale) else {})
    raise ConfigError(f"{where} is {shown(value)}, which has no name that a config could hold; register it")


def _plain_fields(record: Any, defaults: bool, where: str) -> dict[str, Any]:
    fields = {}
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if field.init and (defaults or value != default):
            fields[field.name] = plain(value, defaults, f"{where}.{field.name}")
    return fields
