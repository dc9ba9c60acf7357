"""Nested dicts of features and of inputs: each feature goes by its own name."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any


def leaves(tree: Any) -> Iterator[Any]:
    """Yield the leaves of nested mappings, lists and tuples, in order.

    >>> list(leaves({"user": {"id": 1}, "items": [2, (3,)]}))
    [1, 2, 3]
    """
    if isinstance(tree, Mapping | list | tuple):
        for item in tree.values() if isinstance(tree, Mapping) else tree:
            yield from leaves(item)
    else:
        yield tree


def flat_inputs(inputs: Mapping[str, Any], names: Container[str]) -> Mapping[str, Any]:
    """Return the inputs by feature. In a nested mapping a feature is found by its path, or by the last key alone.

    >>> flat_inputs({"user": {"id": [1]}, "item": {"id": [2]}}, {"user/id", "item/id"})
    {'user/id': [1], 'item/id': [2]}
    >>> flat_inputs({"user": {"seen": [1]}, "item": [2]}, {"seen", "item"})
    {'seen': [1], 'item': [2]}
    """
    if not any(isinstance(given, Mapping) for given in inputs.values()):
        return inputs
    made: dict[str, Any] = {}
    for path, given in _paths(inputs, ""):
        last = path.rpartition("/")[2]
        name = last if path not in names and last in names else path
        if name in made:
            raise ValueError(f"the inputs have the feature '{name}' twice; call the features by their paths")
        made[name] = given
    return made


def _paths(inputs: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, given in inputs.items():
        if isinstance(given, Mapping):
            yield from _paths(given, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", given
