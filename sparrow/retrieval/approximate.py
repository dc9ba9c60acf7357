"""`Approximate`: FAISS's indexes, set so that they find a share of what exact search finds, which is measured."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sparrow import fields
from sparrow.errors import ConfigError
from sparrow.kernels.search import Excluded, best_rows

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]
Kind = Literal["ivf", "ivf_sq8", "hnsw"]

KINDS: Final = ("ivf", "ivf_sq8", "hnsw")
JUDGED: Final = 10
"""Items per query by which an index is compared with exact search."""
LEARNED: Final = 64
"""Vectors per list by which the centers of lists are learned."""
LINKS: Final = 32
"""Links of an item in HNSW's graph."""


@dataclasses.dataclass(frozen=True)
class Approximate:
    """A FAISS index.

    Attributes:
      kind: "ivf" (lists around centers), "ivf_sq8" (the same with 8-bit codes), or "hnsw" (a graph).
      index: FAISS's object.
      effort: lists to look at (``nprobe``), or candidates to hold (``efSearch``).
      recall: the share of exact search's first `JUDGED` items that it found, when it was built.
    """

    kind: Kind
    index: Any
    effort: int
    recall: float

    def search(
        self, queries: Floats, k: int, allowed: npt.NDArray[np.bool_] | None, excluded: Excluded | None
    ) -> tuple[Floats, Numbers]:
        """Return scores and places, as `sparrow.kernels.search.best_rows` does."""
        lists = np.zeros(len(queries) + 1, np.int64) if excluded is None else excluded.offsets
        wanted = min(k + int(np.diff(lists).max(initial=0)), self.index.ntotal)
        # Enough for more items than it was judged by: lists that hold four times as many on average.
        least = 2 * wanted if self.kind == "hnsw" else -(-4 * wanted * self.index.nlist // self.index.ntotal)
        found, rows = _searched(self.index, self.kind, queries, wanted, max(self.effort, least), allowed)
        if excluded is not None:
            for query in range(len(queries)):
                own = excluded.rows[lists[query] : lists[query + 1]]
                rows[query, np.isin(rows[query], own)] = -1
        order = np.argsort(rows < 0, axis=1, kind="stable")[:, :k]
        rows, found = np.take_along_axis(rows, order, 1), np.take_along_axis(found, order, 1)
        if rows.shape[1] < k:
            rows = np.pad(rows, ((0, 0), (0, k - rows.shape[1])), constant_values=-1)
            found = np.pad(found, ((0, 0), (0, k - found.shape[1])))
        return np.where(rows >= 0, found, -np.inf).astype(np.float32), rows.astype(np.int64)

    def write(self, path: Path) -> None:
        path.write_bytes(faiss().serialize_index(self.index).tobytes())


def faiss() -> Any:
    """Return the library, or raise the sentence on how to install it."""
    try:
        return importlib.import_module("faiss")
    except ImportError:
        raise ConfigError(
            'approximate search needs FAISS: pip install "sparrow-rec[search]", or use exact search'
        ) from None


def build_approximate(vectors: Floats, kind: Kind, queries: Floats, *, recall: float = 0.95) -> Approximate:
    """Build an index with the least effort that finds ``recall`` of what exact search finds for ``queries``."""
    fields.choice("index: kind", kind, KINDS)
    fields.number("index: recall", recall, above=0, at_most=1)
    library, count = faiss(), len(vectors)
    dim, measure = vectors.shape[1], library.METRIC_INNER_PRODUCT
    if kind == "hnsw":
        index = library.IndexHNSWFlat(dim, LINKS, measure)
    else:
        lists = max(1, min(int(4 * count**0.5), count // 39))  # FAISS wants 39 vectors per list to learn from
        name = f"IVF{lists},{'Flat' if kind == 'ivf' else 'SQ8'}"
        index = library.index_factory(dim, name, measure)
        index.train(np.ascontiguousarray(vectors[:: max(1, count // (LEARNED * lists))]))
    index.add(np.ascontiguousarray(vectors))
    known = best_rows(queries, [vectors], min(JUDGED, count))[1]
    most = count if kind == "hnsw" else int(index.nlist)

    def found(effort: int) -> float:
        rows = _searched(index, kind, queries, known.shape[1], effort, None)[1]
        return float(np.mean([np.isin(own, other).mean() for own, other in zip(known, rows, strict=True)]))

    low, effort = 0, 1
    while (share := found(effort)) < recall and effort < most:
        low, effort = effort, min(2 * effort, most)
    while effort - low > 1:
        middle = (low + effort) // 2
        if (own := found(middle)) < recall:
            low = middle
        else:
            effort, share = middle, own
    return Approximate(kind, index, effort, share)


def read_approximate(data: Any, kind: Kind, effort: int, recall: float) -> Approximate:
    """Return an index from the bytes of its file."""
    return Approximate(kind, faiss().deserialize_index(np.frombuffer(data, np.uint8)), effort, recall)


def _searched(
    index: Any, kind: str, queries: Floats, k: int, effort: int, allowed: npt.NDArray[np.bool_] | None
) -> tuple[Floats, Numbers]:
    library = faiss()
    options: dict[str, Any] = {"efSearch": effort} if kind == "hnsw" else {"nprobe": effort}
    if allowed is not None:
        options["sel"] = library.IDSelectorBatch(np.flatnonzero(allowed))
    chosen = library.SearchParametersHNSW if kind == "hnsw" else library.SearchParametersIVF
    scores, rows = index.search(np.ascontiguousarray(queries), k, params=chosen(**options))
    return scores, rows
