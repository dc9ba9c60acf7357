"""Lookup and update of rows on one device. A backend is a module with these functions; `xla` is the reference.

``lookup(table, lookups, dtype)``                  pooled rows of every bag
``lookup_and_sort(table, lookups, dtype)``         the same, and the sorted lookups for the update of the batch
``update(step, table, slots, grads, scalars)``     one row step per touched row, in place where donated
``unavailable()``, ``unsupported(step)``           why it cannot run here, or cannot run this step; None: it can
"""

from sparrow.kernels.attention import (
    Past,
    TimeBucket,
    gated_attention,
    jagged_attention,
    masked_softmax,
    portable_attention,
    time_buckets,
    token_places,
)
from sparrow.kernels.backend_choice import BACKENDS, Backend, backends, choose
from sparrow.kernels.device_kind import platform
from sparrow.kernels.norms import layer_norm
from sparrow.kernels.pairs import pairwise_dots
from sparrow.kernels.rounding import GOLDEN, mix
from sparrow.kernels.types import LIMITS, EntryGradients, Lookups, RowStep, StepScalars, stand_in
from sparrow.kernels.xla import sum_by_row
