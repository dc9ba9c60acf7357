"""An index in a folder: vectors that are mapped and not read, ids and attributes in Arrow, and what was measured."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa

from sparrow.retrieval.approximate import KINDS, read_approximate
from sparrow.retrieval.index import ItemIndex

VECTORS: Final = "vectors.f32"
"""The vectors, row after row, as little-endian float32."""
ITEMS: Final = "items.arrow"
ABOUT: Final = "index.json"
GRAPH: Final = "faiss.index"
FILES: Final = (VECTORS, ITEMS, ABOUT, GRAPH)
ID: Final = "id"
FORMAT: Final = 1


def write_index(index: ItemIndex, folder: Path) -> list[Path]:
    """Write an index into a folder, which is made; return its files."""
    folder.mkdir(parents=True, exist_ok=True)
    index.vectors.astype("<f4", copy=False).tofile(folder / VECTORS)
    columns = {ID: index.ids}
    if index.attributes is not None:
        columns |= {f"a/{name}": index.attributes[name].combine_chunks() for name in index.attributes.column_names}
    table = pa.table(columns)
    with pa.ipc.new_file(str(folder / ITEMS), table.schema) as writer:
        writer.write_table(table)
    about: dict[str, Any] = {"format": FORMAT, "items": len(index), "dim": index.vectors.shape[1]}
    about |= {"item": index.item, "user": index.user}
    if index.approximate is not None:
        kept = dataclasses.asdict(dataclasses.replace(index.approximate, index=None))
        about["approximate"] = {name: value for name, value in kept.items() if name != "index"}
        index.approximate.write(folder / GRAPH)
    (folder / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
    names = (VECTORS, ITEMS, ABOUT, *((GRAPH,) if index.approximate is not None else ()))
    return [folder / name for name in names]


def read_index(
    read: Callable[[str], bytes],
    vectors: BinaryIO,
    *,
    approximate: bool = False,
    failed: Callable[[str], Exception] = ValueError,
) -> ItemIndex:
    """Read an index. Vectors stay in their file, shared by the processes that read it.

    Args:
      read: returns the content of a file of the index, by its name.
      vectors: the open file of the vectors.
      approximate: whether to read FAISS's file, if there is one. FAISS trusts it: only for an index of your own.
      failed: makes the error of damaged files from a sentence.
    """
    try:
        about = json.loads(read(ABOUT))
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']}, and this version reads {FORMAT}")
        table = pa.ipc.open_file(pa.py_buffer(read(ITEMS))).read_all()
        table.validate(full=True)
        count, dim = int(about["items"]), int(about["dim"])
        if min(count, dim) < 1 or table.num_rows != count or os.fstat(vectors.fileno()).st_size != 4 * count * dim:
            raise ValueError("its files contradict each other; export again")
        attributes = {name[2:]: table[name] for name in table.column_names if name.startswith("a/")}
        graph = None
        if approximate and (held := about.get("approximate")) is not None:
            if held["kind"] not in KINDS:
                raise ValueError(f"unknown kind {held['kind']!r}")
            graph = read_approximate(read(GRAPH), held["kind"], int(held["effort"]), float(held["recall"]))
        return ItemIndex(
            table[ID].combine_chunks(),
            np.memmap(vectors, "<f4", "r", shape=(count, dim)),
            pa.table(attributes) if attributes else None,
            graph,
            str(about["item"]),
            None if about["user"] is None else str(about["user"]),
        )
    except (OSError, KeyError, TypeError, OverflowError, RecursionError, pa.ArrowException, ValueError) as error:
        raise failed(f"the index of items cannot be read: {error}") from None
