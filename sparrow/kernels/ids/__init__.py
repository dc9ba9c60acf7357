"""The map from 64-bit ids to rows of a stack, as state of the step.

A backend has ``find``, ``assign`` and ``indexed``; `types` has the definition that they follow, `xla` is the reference.
"""

from sparrow.kernels.ids.choice import BACKENDS, IdBackend, choose
from sparrow.kernels.ids.saved import init, numbers, restored
from sparrow.kernels.ids.types import (
    LFU,
    LRU,
    NONE,
    TOTALS,
    Assigned,
    Changed,
    IdState,
    Segment,
    Settings,
    most_gone,
    settings,
)
from sparrow.kernels.ids.words import numbers_of, part_of, part_of_numpy, words_of

__all__ = [
    "BACKENDS",
    "LFU",
    "LRU",
    "NONE",
    "TOTALS",
    "Assigned",
    "Changed",
    "IdBackend",
    "IdState",
    "Segment",
    "Settings",
    "choose",
    "init",
    "most_gone",
    "numbers",
    "numbers_of",
    "part_of",
    "part_of_numpy",
    "restored",
    "settings",
    "words_of",
]
