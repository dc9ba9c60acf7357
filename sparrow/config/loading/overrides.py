"""Overrides on the command line: ``train.batch_size=4096``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from sparrow.errors import ConfigError, Path, Problem, dotted, shown
from sparrow.registry import load_yaml

_STEP: Final = re.compile(r"([A-Za-z_][\w-]*)|\[(\d{1,9})\]", re.ASCII)


def override(data: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return ``data`` with one field set; the value is read as YAML.

    A mapping that is not there yet is made; a place in a list must be there. ``null`` sets None.

    >>> override({"train": {"steps": 10}}, "train.dense_optimizer.learning_rate=1e-3")
    {'train': {'steps': 10, 'dense_optimizer': {'learning_rate': 0.001}}}
    >>> override({"losses": ("l2",)}, "losses[1]=jrc")
    Traceback (most recent call last):
    sparrow.errors.ConfigError: losses[1]: there is no such place, the list has 1
    """
    path, value = parse_override(text)
    return dict(_set(data, path, value, ()))


def parse_override(text: str) -> tuple[Path, Any]:
    """Return the field and the value of an override."""
    where, equals, value = text.partition("=")
    path = _path(where.strip())
    if not equals or path is None:
        raise ConfigError(f"an override is written field.field=value or field[0].field=value, got {shown(text)}")
    import yaml

    try:
        return path, load_yaml(value)
    except RecursionError:
        raise ConfigError([Problem(path, "the override is nested too deeply")]) from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, KeyError, IndexError, AttributeError):
        raise ConfigError([Problem(path, f"the override's value is not YAML: {shown(value)}")]) from None


def _path(text: str) -> Path | None:
    """``tasks.click.losses[0]`` as keys and positions; None where it is not written so."""
    path: list[str | int] = []
    for part in text.split("."):
        steps = list(_STEP.finditer(part))
        if "".join(step.group() for step in steps) != part or not steps or steps[0].group(1) is None:
            return None
        if any(step.group(1) for step in steps[1:]):
            return None
        path += [step.group(1) or int(step.group(2)) for step in steps]
    return tuple(path)


def _set(node: Any, path: Path, value: Any, done: Path) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    here = (*done, key)
    if isinstance(key, int):
        if not isinstance(node, list | tuple):
            raise ConfigError([Problem(done, f"is not a list, so {dotted(here)} cannot be set")])
        if key >= len(node):
            raise ConfigError([Problem(here, f"there is no such place, the list has {len(node)}")])
        return (*node[:key], _set(node[key], rest, value, here), *node[key + 1 :])
    if isinstance(node, str):
        node = {"name": node}  # a record that is written by its name alone
    if node is None:
        node = {}
    if not isinstance(node, Mapping):
        raise ConfigError([Problem(done, f"is {shown(node)}, so {dotted(here)} cannot be set")])
    return {**node, key: _set(node.get(key), rest, value, here)}
