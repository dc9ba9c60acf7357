"""JSON schemas of records, for editors: the types of `sparrow.registry.reading` in that language.

Descriptions of fields are read from the docstrings of their classes.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import math
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

import jax

from sparrow.registry.reading import NOT_EMPTY, REGISTRIES, fields_of, registry_of, written

_SECTION = re.compile(r"^(?:Attributes|Args):\n((?:(?: .*)?\n)+)", re.MULTILINE)
_FIELD = re.compile(r"^( {2}| {4})(\w+(?:,\s+\w+)*): (.*(?:\n\1 +.*)*)", re.MULTILINE)
_AS_IN = re.compile(r"as in `(\w+)`\.?")


def described(cls: type[Any]) -> dict[str, str]:
    """Return the descriptions of a class's fields, from the sections "Attributes" of its docstring and its bases'.

    Several names may share a description, and "as in `Other`." is that of another registered class. A class that stands
    for another one, as the record of a model does, has it in its attribute ``model``.

    >>> class Paper:
    ...     '''A sheet of paper.
    ...
    ...     Attributes:
    ...       width, height: its size,
    ...         in meters.
    ...     '''
    >>> described(Paper)
    {'width': 'Its size, in meters.', 'height': 'Its size, in meters.'}
    """
    found: dict[str, str] = {}
    for base in reversed(inspect.getmro(cls)):
        for source in (vars(base).get("model"), base):
            if isinstance(source, type) and (text := vars(source).get("__doc__")):
                found |= _fields(inspect.cleandoc(text))
    return found


def summary(cls: type[Any]) -> str:
    """Return the first paragraph of a class's docstring, of its model's for the record of a model."""
    source = vars(cls).get("model", cls)
    text = inspect.cleandoc(source.__doc__ or "").partition("\n\n")[0]
    return _one_line(text).rstrip(":")


def _fields(text: str) -> dict[str, str]:
    found = {}
    section = _SECTION.search(text + "\n")
    for _, names, words in _FIELD.findall(section[1]) if section else []:
        other = _AS_IN.fullmatch(_one_line(words))
        classes = {cls.__name__: cls for registry in REGISTRIES for cls in registry.classes()} if other else {}
        elsewhere = described(classes[other[1]]) if other else {}
        for name in re.split(r",\s+", names):
            found[name] = elsewhere[name] if other else _one_line(words[0].upper() + words[1:])
    return found


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


PLACEHOLDER: Final = "x-sparrow-record"
"""The key of a placeholder for the records of one kind, which a complete schema replaces by a reference."""

_SCALARS: Final = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def schema(hint: Any) -> dict[str, Any]:
    """Return the JSON schema of a field of type ``hint``.

    >>> schema(tuple[int, ...] | None)
    {'anyOf': [{'type': 'array', 'items': {'type': 'integer'}}, {'type': 'null'}]}
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        inner = schema(arguments[0])
        return inner | _limit_schema(inner.get("type"), arguments[1])
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
        return {PLACEHOLDER: hint.__name__} if hasattr(hint, "as_fields") else fields_schema(hint)
    return {}


def _limit_schema(kind: Any, limit: Any) -> dict[str, Any]:
    if limit == NOT_EMPTY:
        return {{"string": "minLength", "array": "minItems"}.get(kind, "minProperties"): 1}
    names = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    return {name: bound for name, bound in zip(names, limit, strict=True) if math.isfinite(bound)}


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
