"""Every field that a config may have is described, for editors and for the reference."""

import json
from pathlib import Path

import pytest

import sparrow
from sparrow.config.loading.json_schema import KINDS
from sparrow.data import IdFeature, SequenceFeature
from sparrow.registry.schema import described

SCHEMA = json.loads((Path(sparrow.__file__).parent / "config" / "schema.json").read_text())  # without what tests add


def fields_without_description(node, path=()):
    if isinstance(node, list):
        for number, item in enumerate(node):
            yield from fields_without_description(item, (*path, number))
    elif isinstance(node, dict):
        for name, field in node.get("properties", {}).items():
            described = bool(field.get("description")) or set(field) == {"$ref"}
            if not described:
                yield "/".join(map(str, (*path, node.get("title", ""), name)))
        for key, item in node.items():
            yield from fields_without_description(item, (*path, key))


def test_every_field_has_a_description():
    assert list(fields_without_description(SCHEMA)) == []


@pytest.mark.parametrize("registry", KINDS, ids=lambda registry: registry.kind)
def test_every_shared_description_is_of_some_field(registry):
    own = {field for cls in registry.classes() for field in cls.__dataclass_fields__}
    assert set(registry.descriptions) <= own


@pytest.mark.parametrize("registry", KINDS, ids=lambda registry: registry.kind)
def test_every_record_has_a_summary(registry):
    definitions = SCHEMA["$defs"][registry.kind]["anyOf"]
    assert all(form["description"] for form in definitions if "properties" in form)


def test_a_description_may_be_that_of_another_class():
    assert described(SequenceFeature)["column"] == described(IdFeature)["column"] != ""
