"""JSON schemas of records, for editors: the types of `sparrow.registry.reading` in that language."""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

import jax

from sparrow.registry.described import described, summary
from sparrow.registry.reading import fields_of, registry_of
from sparrow.registry.writing import written

PLACEHOLDER: Final = "x-sparrow-record"
"""The key of a placeholder for the records of one kind, which a complete schema replaces by a reference."""

_SCALARS: Final = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def schema(hint: Any) -> dict[str, Any]:
    """Return the JSON schema of a field of type ``hint``.

    >>> schema(tuple[int, ...] | None)
    {'anyOf': [{'type': 'array', 'items': {'type': 'integer'}}, {'type': 'null'}]}
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        members = [schema(argument) for argument in arguments if argument is not jax.Array]
        return members[0] if len(members) == 1 else {"anyOf": members}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (tuple, collections.abc.Sequence, list):
        if len(arguments) == 1 or arguments[-1] is ...:
            return {"type": "array", "items": schema(arguments[0])}
        return {
            "type": "array",
            "prefixItems": list(map(schema, arguments)),
            "minItems": len(arguments),
            "items": False,
        }
    if origin in (dict, collections.abc.Mapping):
        return {"type": "object", "additionalProperties": schema(arguments[1])}
    if (registry := registry_of(hint)) is not None:
        return {PLACEHOLDER: registry.kind}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return fields_schema(hint)
    return {}


def fields_schema(cls: type[Any], descriptions: Mapping[str, str] = types.MappingProxyType({})) -> dict[str, Any]:
    """Return the JSON schema of a mapping of the fields of a dataclass; ``descriptions`` of fields that it lacks."""
    properties = {}
    texts = {**descriptions, **described(cls)}
    for name, field in fields_of(cls).items():
        default = {} if field.required else {"default": written(field.default)}
        description = {"description": texts[name]} if name in texts else {}
        properties[name] = {**schema(field.hint), **default, **description}
    required = [name for name, field in fields_of(cls).items() if field.required]
    made = {
        "type": "object",
        "title": cls.__name__,
        "description": summary(cls),
        "properties": properties,
        "additionalProperties": False,
    }
    return {**made, "required": required} if required else made
