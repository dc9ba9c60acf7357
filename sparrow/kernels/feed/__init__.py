"""The feed's hot path in C++: from files' columns to packed batches, without the interpreter's lock.

Where there is no compiler, NumPy does the same work in `sparrow.data` and `sparrow.embedding`, to the same bits.
"""

from sparrow.kernels.feed import pool, steps
from sparrow.kernels.feed.buffers import Arrays, BatchLayout, Joined, Pattern, Stored, joined, word_type, words
from sparrow.kernels.feed.conversion import Converted, Later, Tail, convert, decode
from sparrow.kernels.feed.filling import ColumnFilling, Filling
from sparrow.kernels.feed.loading import library, unavailable
from sparrow.kernels.feed.ordering import bags, numbered, shuffled, take_tails
from sparrow.kernels.feed.parquet import CODECS, Encoded, Footer, Leaf, check_pages, read, read_footer
from sparrow.kernels.feed.plain import Column, Field, Packed, Rows, gains_of
from sparrow.kernels.feed.steps import Step, Steps
from sparrow.kernels.feed.text import EncodedText, TextForm
from sparrow.kernels.native.host import address
