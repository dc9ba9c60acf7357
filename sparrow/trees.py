"""Leaves of pytrees by name: the one format of parameter paths, such as ``deep/layers/0/kernel``."""

from __future__ import annotations

from typing import Any

import jax


def path_name(path: tuple[Any, ...]) -> str:
    """Return a path of ``jax.tree_util`` as a string."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def named_leaves(tree: Any) -> dict[str, Any]:
    """Return the leaves by name, in the order of ``jax.tree.leaves``.

    >>> named_leaves({"tower": [{"kernel": 1, "bias": 2}], "embedding": 3})
    {'embedding': 3, 'tower/0/bias': 2, 'tower/0/kernel': 1}
    """
    return {path_name(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
