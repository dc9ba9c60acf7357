"""Descriptions of a section's fields: the strings below them in its source, read only where somebody asks for them."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from typing import Any

from sparrow.config.loading.section import Section


def add_descriptions(schema: dict[str, Any]) -> None:
    """Add the description of each field to pydantic's JSON schema of a section and of those inside it."""
    forms = {**schema.get("$defs", {}), schema["title"]: schema}
    for section in _sections(Section):
        properties = forms.get(section.__name__, {}).get("properties", {})
        for name, text in descriptions(section).items():
            field = properties.get(name, {})
            if forms.get(field.get("$ref", "").rpartition("/")[2], {}).get("description") != text:
                field.setdefault("description", text)


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
