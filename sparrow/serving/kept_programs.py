"""`KeptPrograms`: a limit on the programs that a jitted function keeps in memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any


class KeptPrograms:
    """A jitted function's programs, all dropped when one more than the limit is needed.

    >>> import jax, jax.numpy as jnp
    >>> double = jax.jit(lambda x: 2 * x)
    >>> kept = KeptPrograms(double, most=2)
    >>> for size in (1, 2, 1, 3):
    ...     print(kept.is_new(size), double(jnp.ones(size)).shape, double._cache_size())
    True (1,) 1
    True (2,) 2
    False (1,) 2
    True (3,) 1
    """

    def __init__(self, function: Any, most: int) -> None:
        """Keep programs of ``function``, which `jax.jit` made."""
        self._function, self._most = function, most
        self._known: set[Hashable] = set()

    def is_new(self, shapes: Hashable) -> bool:
        """Return whether a program for ``shapes`` must be compiled; call this before the function."""
        if shapes in self._known:
            return False
        if len(self._known) >= self._most:
            self._function.clear_cache()
            self._known.clear()
        self._known.add(shapes)
        return True
