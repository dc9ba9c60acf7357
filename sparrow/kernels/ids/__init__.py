"""The map from 64-bit ids to rows of a stack, as state of the step.

`types` has the definition that all backends follow, `xla` is the reference.
"""

from sparrow.kernels.ids.choice import BACKENDS, IdBackend, choose
from sparrow.kernels.ids.saved import init, restored
from sparrow.kernels.ids.types import (
    DISTANCE_LFU,
    GROUPS,
    LFU,
    LRU,
    NONE,
    TOTALS,
    Assigned,
    Changed,
    IdState,
    Segment,
    Settings,
    Undo,
    group_of,
    most_gone,
    settings,
)
from sparrow.kernels.ids.words import U64, hash_integers, mix64_of_numpy, numbers_of, part_of, part_of_numpy, words_of
