"""The public names: the pages of the Python reference, and the names on each. A test holds them to `dir`."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import sparrow

ROOMS = (
    *("sparrow", "rules", "dense", "schedules", "losses", "metrics", "models", "data"),
    *("nnx", "linen", "config", "runs", "checkpoint", "exports", "serving"),
)
"""The public modules, a page each."""


def module_of(room: str) -> ModuleType:
    """Return the module of a page."""
    found: ModuleType = sparrow if room == "sparrow" else getattr(sparrow, room)
    return found


def described(room: str) -> dict[str, Any]:
    """Return the classes and functions of a module that have a docstring, by name: each has a section."""
    module = module_of(room)
    values = {name: getattr(module, name) for name in module.__all__}
    return {name: value for name, value in values.items() if _is_made_here(value) and inspect.getdoc(value)}


def listed(room: str) -> dict[str, str]:
    """Return the other names of a module, with a line for each: modules, constants, and shorter names."""
    module = module_of(room)
    lines = {}
    for name in sorted(set(module.__all__) - set(described(room))):
        value = getattr(module, name)
        if inspect.ismodule(value):
            lines[name] = f"[sparrow.{name}]({name}.md): {_first_line(value)}"
        elif inspect.ismethod(value):
            lines[name] = _first_line(value)
        elif isinstance(value, str):
            lines[name] = f"`{value!r}`"
        else:
            lines[name] = f"{_kind(value)}: {_first_line(value)}"
    return lines


def _is_made_here(value: Any) -> bool:
    is_code = inspect.isclass(value) or inspect.isfunction(value)
    return is_code and value.__module__.startswith("sparrow")


def _kind(value: Any) -> str:
    return f"a `{type(value).__name__}`"


def _first_line(value: Any) -> str:
    return (inspect.getdoc(value) or "").split("\n")[0]
