"""Configs as plain values, which files hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from sparrow.optimizer import LossScale
from sparrow.registry import written


def plain(value: Any, defaults: bool = False, where: str = "config") -> Any:
    """Return a section, a record or a value as mappings, lists, strings and numbers.

    Fields that have their default value are left out, unless ``defaults``; a record of defaults alone is its name.
    """
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
    made = written(value, defaults=defaults, where=where)
    return made or True if isinstance(value, LossScale) else made
