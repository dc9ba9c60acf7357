"""Which parameters are stacks of layers, and where factors, momentum and updates lie on a mesh."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, PartitionSpec

from sparrow.dense.paths import check_patterns, is_patterns, matching, path_names


def by_name(what: str, given: Any, tree: Any, default: Any) -> dict[str, Any]:
    """Return the value of each leaf of ``tree`` by its path; ``given`` is a tree of values, or a function to one.

    >>> by_name("scanned_layers", {"a": True, "b": False}, {"a": 0.0}, default=False)
    {'a': True}
    """
    names = path_names(tree)
    if given is None:
        return dict.fromkeys(names, default)
    found = given(tree) if callable(given) else given
    paths, values = path_names(_boxed(found)), jax.tree.leaves(found, is_leaf=_is_value)
    of_path = dict(zip(paths, values, strict=True))
    for name in names:
        if name not in of_path:
            raise ValueError(f"{what} has no leaf '{name}'; it needs the structure of the parameters")
    return {name: default if of_path[name] is None else of_path[name] for name in names}


def scanned(given: Any, tree: Any, *, check: bool = False) -> dict[str, bool]:
    """Return which leaves of ``tree`` are stacks of layers, by patterns over paths, a tree or a function."""
    if is_patterns(given):
        if check:
            check_patterns([given], tree)
        given = matching(given)
    found = by_name("scanned_layers", given, tree, default=False)
    for (name, stacked), leaf in zip(found.items(), jax.tree.leaves(tree), strict=False):
        if not isinstance(stacked, bool):
            raise ValueError(f"scanned_layers must hold True or False for '{name}', got {stacked!r}")
        if stacked and not leaf.shape:
            raise ValueError(f"scanned_layers is True for '{name}', which is a scalar and has no axis of layers")
    return found


def constrain(array: jax.Array, spec: PartitionSpec | None, what: str) -> jax.Array:
    """Return the array laid out by ``spec`` over the mesh of the context; as it is without a spec."""
    if spec is None:
        return array
    mesh = jax.sharding.get_abstract_mesh()
    axes = [axis for entry in spec for axis in (entry if isinstance(entry, tuple) else (entry,)) if axis is not None]
    missing = [axis for axis in axes if axis not in mesh.axis_names]
    if mesh.empty or missing:
        found = "there is none" if mesh.empty else f"its axes are {', '.join(mesh.axis_names)}"
        raise ValueError(
            f"{what} names the mesh axis {', '.join(map(repr, missing or axes))}, so init and update must run inside "
            f"`with jax.set_mesh(mesh):` with a mesh that has it; {found}"
        )
    place: Any = jax.sharding.reshard if AxisType.Explicit in mesh.axis_types else jax.lax.with_sharding_constraint
    placed: jax.Array = place(array, spec)
    return placed


def on_mesh(function: Callable[..., Any], *arguments: Any, results: Any) -> Any:
    """Return ``function(*arguments)``; where axes of the mesh are explicit, the compiler places what is in between.

    ``results`` are arrays that lie as the results shall.
    """
    if AxisType.Explicit not in jax.sharding.get_abstract_mesh().axis_types:
        return function(*arguments)
    lies = jax.tree.map(lambda array: jax.typeof(array).sharding.spec, results)
    return jax.sharding.auto_axes(function, out_sharding=lies)(*arguments)


def _is_value(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, PartitionSpec)


def _boxed(tree: Any) -> Any:
    """Return the tree with a plain leaf for each value, None and PartitionSpec among them."""
    return jax.tree.map(lambda _: 0, tree, is_leaf=_is_value)
