"""Parameters by name: paths such as ``tower/layers/0/kernel``, and patterns over them.

A pattern is a regular expression that must match a complete name. The same functions serve parameter paths and table
names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from sparrow.trees import path_name

Patterns = str | Sequence[str]

_LISTED = 50  # names in one error message


def path_names(tree: Any) -> list[str]:
    """Return the name of every leaf, in the order of ``jax.tree.leaves``.

    Works for nested dicts, lists, named tuples, dataclasses and Flax states; the box that Flax puts around an array
    (``nnx.Param``, ``nn.Partitioned``) is not part of the name.

    >>> path_names({"tower": [{"kernel": 1, "bias": 2}], "embedding": 3})
    ['embedding', 'tower/0/bias', 'tower/0/kernel']
    """
    names = []
    for path, node in jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_flax_box)[0]:
        inside = jax.tree_util.tree_flatten_with_path(node)[0]
        for inner_path, _ in inside:
            names.append(path_name(path if len(inside) == 1 else (*path, *inner_path)))
    return names


def assign(patterns: Sequence[Patterns], names: Iterable[str]) -> dict[str, int | None]:
    """Which of the ``patterns`` each name fully matches: its index, or None where none does.

    An entry of ``patterns`` is one regular expression or several that belong together. A regular expression that
    matches no name, and a name matched by two entries, are errors that list the names.

    >>> assign([r"tower/.*", r".*/bias"], ["embedding", "tower/kernel", "head/bias"])
    {'embedding': None, 'tower/kernel': 0, 'head/bias': 1}
    >>> assign([r"towr/.*"], ["tower/kernel", "head/bias"])
    Traceback (most recent call last):
    ValueError: pattern 'towr/.*' fully matches none of the names: tower/kernel, head/bias
    """
    names = list(names)
    for pattern in (_compile(pattern) for entry in patterns for pattern in _listed(entry)):
        if not any(pattern.fullmatch(name) for name in names):
            raise ValueError(f"pattern '{pattern.pattern}' fully matches none of the names: {_list(names)}")
    return _assign(patterns, names)


def is_patterns(given: Any) -> bool:
    """Return whether ``given`` is a regular expression or a list of them, and not a tree or a function."""
    return isinstance(given, str) or (
        isinstance(given, list | tuple) and bool(given) and all(isinstance(pattern, str) for pattern in given)
    )


def matching(patterns: Patterns) -> Callable[[Any], Any]:
    """Return a function from a tree to a tree of booleans: does any of the ``patterns`` fully match the leaf's name.

    >>> matching(r".*kernel")({"kernel": 1.0, "bias": 2.0})
    {'bias': False, 'kernel': True}
    """
    compiled = [_compile(pattern) for pattern in _listed(patterns)]

    def mask(tree: Any) -> Any:
        hits = [any(pattern.fullmatch(name) for pattern in compiled) for name in path_names(tree)]
        return jax.tree.unflatten(jax.tree.structure(tree), hits)

    return mask


def labels(groups: Sequence[str], patterns: Sequence[Patterns], rest: str, tree: Any) -> Any:
    """Return a tree of group names: the group whose pattern matches the leaf's name, ``rest`` where none does."""
    names = path_names(tree)
    indices = _assign(patterns, names)
    found = [rest if (index := indices[name]) is None else groups[index] for name in names]
    return jax.tree.unflatten(jax.tree.structure(tree), found)


def check_patterns(patterns: Sequence[Patterns], tree: Any) -> None:
    """Raise unless every pattern matches a leaf of ``tree`` and no leaf is matched by two entries.

    A tree without leaves passes: ``optax.tree.map_params`` makes the state of one.
    """
    names = path_names(tree)
    if names:
        assign(patterns, names)


def _assign(patterns: Sequence[Patterns], names: list[str]) -> dict[str, int | None]:
    compiled = [(i, _compile(pattern)) for i, entry in enumerate(patterns) for pattern in _listed(entry)]
    found: dict[str, int | None] = {}
    for name in names:
        hits = {index: pattern.pattern for index, pattern in compiled if pattern.fullmatch(name)}
        if len(hits) > 1:
            both = " and ".join(f"'{pattern}'" for pattern in hits.values())
            raise ValueError(
                f"'{name}' is matched by {both}; a name may belong to one group only. Names: {_list(names)}"
            )
        found[name] = next(iter(hits), None)
    return found


def _listed(patterns: Patterns) -> Sequence[str]:
    if isinstance(patterns, str):
        return [patterns]
    if not isinstance(patterns, Sequence):
        raise ValueError(f"patterns must be a regular expression or a list of them, got {patterns!r}")
    return patterns


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ValueError(f"pattern {pattern!r} is not a regular expression: {error}") from error


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _is_flax_box(node: Any) -> bool:
    # By name, so that Flax need not be imported.
    return any(
        base.__module__.startswith("flax.") and base.__name__ in ("Variable", "AxisMetadata")
        for base in type(node).__mro__
    )
