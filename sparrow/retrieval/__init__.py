"""Retrieval: the items of a catalog, and the best of them for a user.

`ItemIndex` searches vectors exactly, or by FAISS where one was built; `TreeIndex` the tree of tdm by beam, and
`CodeIndex` the semantic ids of a generative model. `write_index` and `read_index` keep one in an export.
"""

from sparrow.retrieval.approximate import KINDS, Approximate, Kind, build_approximate
from sparrow.retrieval.codes import CodeIndex
from sparrow.retrieval.index import (
    CANDIDATES,
    ROW,
    Found,
    Index,
    ItemIndex,
    Rank,
    RowIndex,
    RowModel,
    Where,
    paired,
    passing,
)
from sparrow.retrieval.saved import ABOUT, FILES, read_index, write_index
from sparrow.retrieval.tree import LEVEL, TreeIndex, build_tree
