"""The JSON schema of configs, with which editors complete and check them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from sparrow.config.loading.descriptions import add_descriptions
from sparrow.config.loading.registries import REGISTRIES
from sparrow.config.sections.config import Config
from sparrow.config.sections.tasks import METRIC_USE
from sparrow.metrics import registry as METRICS
from sparrow.registry import PLACEHOLDER, Registry, fields_schema

GROUP_BY = {
    "type": "string",
    "minLength": 1,
    "description": "The column of groups: the metric is computed in each of them.",
}


def json_schema() -> dict[str, Any]:
    """Return the schema of a complete config; records that are registered now are part of it.

    >>> schema = json_schema()
    >>> schema["properties"]["train"]
    {'$ref': '#/$defs/Train'}
    >>> schema["$defs"]["Train"]["properties"]["sparse_optimizer"]["$ref"]
    '#/$defs/rule'
    """
    schema = Config.model_json_schema()
    add_descriptions(schema)
    definitions = schema.setdefault("$defs", {})
    for registry in REGISTRIES:
        definitions[registry.kind] = _records(registry)
    definitions[METRIC_USE] = _records(METRICS, {"group_by": GROUP_BY})
    resolved: dict[str, Any] = _resolved(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **resolved}


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
