"""Trees of features: inputs, activations and gradients have the structure in which the features were given."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sparrow.embedding.specs import FeatureSpec
from sparrow.registry import nearest


class Structure:
    """How features were given: dicts, lists, tuples and named tuples of them. Inside, each has a name of its own.

    A plain list of features stands for the dict of them by name. In every other tree a feature goes by its place, and
    two may have one name; such features are then named by their paths.

    >>> from sparrow import FeatureSpec, TableSpec, rules
    >>> table = TableSpec(name="t", vocabulary_size=9, embedding_dim=2, optimizer=rules.SGD(0.1))
    >>> feature = FeatureSpec(name="id", table_spec=table)
    >>> structure = Structure({"user": {"id": feature}, "items": [feature, feature]})
    >>> [feature.name for feature in structure.features]
    ['user/id', 'items/0', 'items/1']
    >>> structure.by_name({"user": {"id": 1}, "items": [2, 3]}, "inputs")
    {'user/id': 1, 'items/0': 2, 'items/1': 3}
    >>> structure.build({"user/id": 1, "items/0": 2, "items/1": 3})
    {'user': {'id': 1}, 'items': [2, 3]}
    """

    def __init__(self, features: Any) -> None:
        given = features if isinstance(features, Mapping) or hasattr(features, "_fields") else list(features)
        self.is_flat = isinstance(given, list) and all(isinstance(each, FeatureSpec) for each in given)
        found = list(leaves(given))
        for _, feature in found:
            if not isinstance(feature, FeatureSpec):
                raise TypeError(f"an Embedder takes FeatureSpecs, got {feature!r}")
        counts = Counter(feature.name for _, feature in found)
        shared = [name for name, count in counts.items() if count > 1]
        if shared and self.is_flat:
            raise ValueError(
                f"two features are called '{shared[0]}'; give them other names, or a place each, in a dict of features"
            )
        names = [path if shared else feature.name for path, feature in found]
        self.features = tuple(
            feature if feature.name == name else dataclasses.replace(feature, name=name)
            for name, (_, feature) in zip(names, found, strict=True)
        )
        self._tree = {name: name for name in names} if self.is_flat else _filled(given, iter(names))

    def build(self, values: Mapping[str, Any]) -> Any:
        """Return the tree of values, from values by name."""
        return _filled(self._tree, (values[feature.name] for feature in self.features))

    def by_name(self, tree: Any, what: str) -> Mapping[str, Any]:
        """Return the values of a tree by the names of features; ``what`` is the tree's name in errors."""
        if self.is_flat:
            if not isinstance(tree, Mapping):
                raise TypeError(f"{what} must be a mapping by feature name, got a {type(tree).__name__}")
            return tree
        return dict(_paired(self._tree, tree, what))


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree with their paths, in order."""
    if not isinstance(tree, Mapping | list | tuple):
        yield path, tree
        return
    for key, item in _items(tree):
        yield from leaves(item, f"{path}/{key}" if path else str(key))


def _items(tree: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tree, Mapping):
        yield from tree.items()
    elif hasattr(tree, "_fields"):
        yield from zip(tree._fields, tree, strict=True)
    else:
        yield from enumerate(tree)


def _filled(tree: Any, leaves: Iterator[Any]) -> Any:
    """Return the tree with other leaves."""
    if isinstance(tree, Mapping):
        return {key: _filled(item, leaves) for key, item in tree.items()}
    if not isinstance(tree, list | tuple):
        return next(leaves)
    items = [_filled(item, leaves) for item in tree]
    if hasattr(tree, "_fields"):
        return type(tree)(*items)
    return items if isinstance(tree, list) else tuple(items)


def _paired(names: Any, tree: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Yield each name with the value at its place."""
    if isinstance(names, str):
        yield names, tree
        return
    if isinstance(names, list | tuple) and not hasattr(names, "_fields"):
        if not isinstance(tree, Sequence) or len(tree) != len(names):
            given = f"{len(tree)} of them" if isinstance(tree, Sequence) else f"a {type(tree).__name__}"
            raise ValueError(f"{where} must be a list of {len(names)}, as the features are, got {given}")
        held: Mapping[Any, Any] = dict(enumerate(tree))
    elif isinstance(tree, Mapping):
        held = tree
    elif hasattr(tree, "_fields"):
        held = dict(_items(tree))
    else:
        wanted = ", ".join(str(key) for key, _ in _items(names))
        raise ValueError(f"{where} must hold {wanted}, as the features do, got a {type(tree).__name__}")
    keys = [key for key, _ in _items(names)]
    for key in held:
        if key not in keys:
            raise ValueError(f"{where} has no feature '{key}': {nearest(str(key), map(str, keys))}")
    for key, item in _items(names):
        if key not in held:
            raise ValueError(f"{where} lacks '{key}'")
        yield from _paired(item, held[key], f"{where}[{key!r}]")
