"""The feed's hot path in C++: from files' columns to packed batches, without the interpreter's lock.

Where there is no compiler, NumPy does the same work in `sparrow.data` and `sparrow.embedding`, to the same bits.
"""

from sparrow.kernels.feed import plan, pool
from sparrow.kernels.feed.conversion import Converted, Later, Tail, convert, decode
from sparrow.kernels.feed.encoded import CODECS, Encoded, EncodedColumn, fields, read
from sparrow.kernels.feed.filling import Field, Filling, Packed, Rows
from sparrow.kernels.feed.footer import Footer, Leaf, Refused, check_pages, read_footer
from sparrow.kernels.feed.loading import library, unavailable
from sparrow.kernels.feed.ordering import bags, numbered, shuffled, take_rows, take_tails
from sparrow.kernels.feed.packing import Given, pack_bags, pack_single
from sparrow.kernels.feed.plan import Plan, Step
from sparrow.kernels.feed.text import EncodedText, TextForm

__all__ = [
    "CODECS",
    "Converted",
    "Encoded",
    "EncodedColumn",
    "EncodedText",
    "Field",
    "Filling",
    "Footer",
    "Given",
    "Later",
    "Leaf",
    "Packed",
    "Plan",
    "Refused",
    "Rows",
    "Step",
    "Tail",
    "TextForm",
    "bags",
    "check_pages",
    "convert",
    "decode",
    "fields",
    "library",
    "numbered",
    "pack_bags",
    "pack_single",
    "plan",
    "pool",
    "read",
    "read_footer",
    "shuffled",
    "take_rows",
    "take_tails",
    "unavailable",
]
