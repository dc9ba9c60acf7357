"""Descriptions of fields, read from the docstrings of their classes."""

from __future__ import annotations

import inspect
import re
from typing import Any

from sparrow.registry.reading import REGISTRIES

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
        elsewhere = described(_class(other[1])) if other else {}
        for name in re.split(r",\s+", names):
            found[name] = elsewhere[name] if other else _one_line(words[0].upper() + words[1:])
    return found


def _class(name: str) -> type[Any]:
    classes: list[type[Any]] = [cls for registry in REGISTRIES for cls in registry.classes()]
    return next(cls for cls in classes if cls.__name__ == name)


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
