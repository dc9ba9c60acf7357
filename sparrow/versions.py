"""Versions of the package and of the packages that its results depend on."""

from __future__ import annotations

import functools
from typing import Final

__version__: Final = "0.2.0"

PACKAGES: Final = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint", "pyarrow")


@functools.cache
def versions() -> dict[str, str]:
    """Return the versions that checkpoints, exports and reports record; a package that is not installed is left out.

    >>> sorted(versions())[:3]
    ['flax', 'jax', 'jaxlib']
    """
    import importlib.metadata  # slow to import, and ``sparrow --help`` needs the version alone
    import platform

    found = {"sparrow": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
