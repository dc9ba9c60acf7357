"""Ways to shorten the start of a command: little garbage collection, late methods, and no pandas that nobody needs."""

from __future__ import annotations

import dataclasses
import gc
import importlib.abc
import sys
from collections.abc import Callable
from typing import Any, Final

YOUNG: Final = 50_000
"""New objects between two collections: imports and traces make millions of objects that stay."""
IMPORTED: Final = 2_000_000
"""The same while modules are imported: more than all of them make."""


def collect_next_to_nothing() -> None:
    """Collect next to no garbage while modules are imported: nearly all of their objects stay."""
    gc.set_threshold(IMPORTED, *gc.get_threshold()[1:])


def collect_seldom() -> None:
    """Collect garbage seldom from now on, in the whole process, and never among the objects that exist by now."""
    gc.freeze()
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


def make_methods_late() -> None:
    """Let dataclasses compile their methods at the first call, but for the constructor.

    A command imports 650 dataclasses, JAX's and Flax's included, and compares or prints few of them: their methods take
    a fifth of all imports. Python 3.13 compiles them in another way, and is left as it is.
    """
    create: Any = getattr(dataclasses, "_create_fn", None)
    if create is None:
        return

    def late(name: str, *arguments: Any, **options: Any) -> Callable[..., Any]:
        if name == "__init__":  # its signature is read at once
            return create(name, *arguments, **options)  # type: ignore[no-any-return]
        made: Any = None

        def method(self: Any, *given: Any) -> Any:
            nonlocal made
            if made is None:
                made = create(name, *arguments, **options)
                made.__qualname__ = method.__qualname__
                for cls in type(self).__mro__:
                    if cls.__dict__.get(name) is method:
                        setattr(cls, name, made)
            return made(self, *given)

        method.__name__ = method.__qualname__ = name
        return method

    dataclasses._create_fn = late  # type: ignore[attr-defined]


def leave_pandas_out() -> None:
    """Let Arrow find no pandas, which it would import at its first conversion wherever it is installed.

    For commands that run no code of a user, who may have frames. A later call that needs pandas, such as
    ``pyarrow.Table.from_pandas``, imports it nevertheless.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas())
    try:
        pa.scalar(0)  # Arrow looks for pandas here, and remembers the answer
    finally:
        del sys.meta_path[0]


class _NoPandas(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)
