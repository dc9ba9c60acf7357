"""Retrieval: the vectors of a catalogue's items, and the best of them for a user's vector.

`ItemIndex` searches exactly, or by FAISS where one was built; `CodeIndex` by the beam of a model of codes.
`write_index` and `read_index` keep vectors in an export.
"""

from sparrow.retrieval.approximate import Approximate, Kind, build_approximate
from sparrow.retrieval.codes import CodeIndex
from sparrow.retrieval.filters import Where, passing
from sparrow.retrieval.index import CANDIDATES, ROW, Found, ItemIndex, Rank
from sparrow.retrieval.saved import FILES, VECTORS, read_index, write_index
from sparrow.retrieval.tree import LEVEL, ItemTree, build_tree

__all__ = [
    "CANDIDATES",
    "FILES",
    "LEVEL",
    "ROW",
    "VECTORS",
    "Approximate",
    "CodeIndex",
    "Found",
    "ItemIndex",
    "ItemTree",
    "Kind",
    "Rank",
    "Where",
    "build_approximate",
    "build_tree",
    "passing",
    "read_index",
    "write_index",
]
