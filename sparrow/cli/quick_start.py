"""Ways to shorten the start of a command: little garbage collection while modules are imported."""

from __future__ import annotations

import gc
from typing import Final

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
