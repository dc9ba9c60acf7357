"""Two ways to shorten the start of a command: fewer collections of garbage, and no pandas that nobody asked for."""

from __future__ import annotations

import gc
import importlib.abc
import sys
from typing import Any, Final

YOUNG: Final = 50_000
"""New objects between two collections: imports and traces make millions of objects that stay."""


def collect_seldom() -> None:
    """Collect garbage seldom, in the whole process."""
    gc.set_threshold(YOUNG, *gc.get_threshold()[1:])


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
