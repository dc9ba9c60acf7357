"""Conversion between pytrees and leaves by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sparrow.checkpoint.errors import CheckpointError
from sparrow.errors import shown
from sparrow.trees import named_leaves


def named(tree: Any) -> dict[str, npt.NDArray[Any]]:
    """Return copies of the leaves on the host, by their path; random keys as their numbers, Python numbers as arrays.

    Refuse a leaf that is neither an array of numbers nor a number.

    >>> {name: array.tolist() for name, array in named({"a": {"b": jnp.ones(2)}, "c": (jnp.zeros(()),)}).items()}
    {'a/b': [1.0, 1.0], 'c/0': 0.0}
    """
    # A copy, never a view: on the CPU the next step reuses the leaf's own memory.
    return {name: _copied(name, leaf) for name, leaf in named_leaves(tree).items()}


def _copied(name: str, leaf: Any) -> npt.NDArray[Any]:
    array = np.array(leaf if is_scalar(leaf) else plain(leaf)) if is_scalar(leaf) or hasattr(leaf, "dtype") else None
    if array is None or not any(jnp.issubdtype(array.dtype, kind) for kind in (jnp.bool_, jnp.integer, jnp.floating)):
        kind = type(leaf).__name__ if array is None else f"{type(leaf).__name__} of {array.dtype}"
        raise CheckpointError(
            f"'{name}' is {shown(leaf)} ({kind}), which a checkpoint does not hold; a state holds arrays and numbers, "
            "plain values go into `about`"
        )
    return array


def is_scalar(leaf: Any) -> bool:
    """Return whether a leaf is a number of Python; those of NumPy are arrays."""
    return type(leaf) in (bool, int, float)


def unnamed(like: Any, arrays: Mapping[str, Any]) -> Any:
    """Return a tree like ``like`` with the leaves of ``arrays``; refuse a leaf that is missing or of another shape."""
    leaves = [_restored(name, leaf, arrays) for name, leaf in named_leaves(like).items()]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _restored(name: str, leaf: Any, arrays: Mapping[str, Any]) -> Any:
    if name not in arrays:
        raise CheckpointError(f"the checkpoint has no '{name}'")
    array, expected = arrays[name], np.asarray(leaf) if is_scalar(leaf) else plain(leaf)
    if array.shape != expected.shape:
        raise CheckpointError(f"'{name}' has the shape {array.shape} in the checkpoint, {expected.shape} here")
    if is_scalar(leaf):
        return np.asarray(array).item()
    value = jnp.asarray(array, expected.dtype)
    return jax.random.wrap_key_data(value, impl=jax.random.key_impl(leaf)) if _is_key(leaf) else value


def _is_key(array: Any) -> bool:
    return bool(jnp.issubdtype(array.dtype, jax.dtypes.prng_key))


def plain(array: Any) -> Any:
    """Return an array of numbers, also for a random key."""
    return jax.random.key_data(array) if _is_key(array) else array
