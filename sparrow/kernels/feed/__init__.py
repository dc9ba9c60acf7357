"""The feed's hot path in C++: from Arrow columns to packed batches, without the interpreter's lock.

Where there is no compiler, NumPy does the same work in `sparrow.data` and `sparrow.embedding`, to the same bits.
"""

from sparrow.kernels.feed import plan
from sparrow.kernels.feed.conversion import Bags, Converted, convert
from sparrow.kernels.feed.loading import keep_memory, library, unavailable
from sparrow.kernels.feed.ordering import shuffled, take_bags, take_rows
from sparrow.kernels.feed.packing import Given, pack_bags, pack_single
from sparrow.kernels.feed.plan import Plan, Step

__all__ = [
    "Bags",
    "Converted",
    "Given",
    "Plan",
    "Step",
    "convert",
    "keep_memory",
    "library",
    "pack_bags",
    "pack_single",
    "plan",
    "shuffled",
    "take_bags",
    "take_rows",
    "unavailable",
]
