"""The JSON schema of configs, with which editors complete and check them: all kinds of records, all descriptions."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import textwrap
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from sparrow.config.loading.section import Section
from sparrow.config.sections.config import Config
from sparrow.config.sections.tasks import MetricUse
from sparrow.metrics import registry as METRICS
from sparrow.registry import PLACEHOLDER, REGISTRIES, Registry, fields_schema

KINDS: Final[tuple[Registry[Any], ...]] = tuple(REGISTRIES)
"""The kinds of records: each has made its registry by now, for the sections import them all."""
GROUP_BY = {
    "type": "string",
    "minLength": 1,
    "description": "The column of groups: the metric is computed in each of them.",
}


def json_schema() -> dict[str, Any]:
    """Return the schema of a complete config; records that are registered now are part of it.

    >>> schema = json_schema()
    >>> schema["properties"]["train"]["$ref"]
    '#/$defs/Train'
    >>> schema["$defs"]["Train"]["properties"]["sparse_optimizer"]["$ref"]
    '#/$defs/rule'
    """
    sections = sorted(set(_sections(Section)) - {Config}, key=lambda section: section.__name__)
    definitions = {section.__name__: fields_schema(section, descriptions(section)) for section in sections}
    definitions |= {registry.kind: _records(registry) for registry in KINDS}
    definitions[MetricUse.__name__] = _records(METRICS, {"group_by": GROUP_BY})
    made = _resolved({**fields_schema(Config, descriptions(Config)), "$defs": definitions})
    text = json.dumps(made)
    made["$defs"] = {name: form for name, form in made["$defs"].items() if f'"#/$defs/{name}"' in text}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def _records(registry: Registry[Any], beside: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Any record of a registry: its name alone where no field is required, or a mapping; and what may stand beside."""
    forms: list[dict[str, Any]] = []
    alone = []
    for name in registry.names():
        form = fields_schema(registry[name], registry.descriptions)
        named = {"const": name, "description": f"The {registry.kind}'s {registry.key}."}
        properties = {registry.key: named, **form.pop("properties", {}), **beside}
        required = form.pop("required", [])
        forms.append({**form, "properties": properties, "required": [registry.key, *required]})
        if not required:
            alone.append(name)
    names = [{"enum": alone}] if alone else []
    return {"anyOf": [*names, *forms]}


def _resolved(node: Any) -> Any:
    """Return the schema with each placeholder of a record replaced by a reference."""
    if isinstance(node, list):
        return [_resolved(item) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {key: _resolved(item) for key, item in node.items() if key != PLACEHOLDER}
    return {"$ref": f"#/$defs/{node[PLACEHOLDER]}", **rest} if PLACEHOLDER in node else rest


def descriptions(section: type[Section]) -> dict[str, str]:
    """Return the description of each field that has one.

    >>> from sparrow.config import TableOptimizer
    >>> descriptions(TableOptimizer)["optimizer"]
    'Their rule; with the learning rate 0 they are frozen.'
    """
    found = {}
    for base in reversed(section.__mro__):
        if not issubclass(base, Section):
            continue
        source = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(source, ast.ClassDef)
        for field, below in itertools.pairwise(source.body):
            is_field = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if is_field and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                found[field.target.id] = inspect.cleandoc(str(below.value.value))  # type: ignore[attr-defined]
    return found


def _sections(base: type[Section]) -> Iterator[type[Section]]:
    for section in base.__subclasses__():
        yield section
        yield from _sections(section)
