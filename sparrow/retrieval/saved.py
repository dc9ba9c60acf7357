"""An index in a folder: vectors that are mapped and not read, all else in Arrow, and what was measured."""

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
from sparrow.retrieval.codes import CodeIndex
from sparrow.retrieval.index import Index, ItemIndex
from sparrow.retrieval.tree import TreeIndex

VECTORS: Final = "vectors.f32"
"""The vectors, row after row, as little-endian float32."""
ITEMS: Final = "items.arrow"
ABOUT: Final = "index.json"
GRAPH: Final = "faiss.index"
FILES: Final = (VECTORS, ITEMS, ABOUT, GRAPH)
ID, PARENT, CODES = "id", "parent", "codes"
"""Columns of `ITEMS`; attributes are called ``a/`` and their name."""
FORMAT: Final = 1


def write_index(index: Index, folder: Path) -> list[Path]:
    """Write an index into a folder, which is made; return its files."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = {ID: index.ids}
    about: dict[str, Any] = {"format": FORMAT, "items": len(index.ids), "item": index.item, "user": index.user}
    names = [ITEMS, ABOUT]
    if isinstance(index, TreeIndex):
        about["kind"] = "tree"
        columns[PARENT] = pa.array(index.parents)
    elif isinstance(index, CodeIndex):
        about |= {"kind": "codes", "inputs": list(index.inputs)}
        columns[CODES] = pa.array(list(index.codes))
    elif isinstance(index, ItemIndex):
        about["dim"] = index.vectors.shape[1]
        index.vectors.astype("<f4", copy=False).tofile(folder / VECTORS)
        names.append(VECTORS)
        if index.approximate is not None:
            kept = dataclasses.asdict(dataclasses.replace(index.approximate, index=None))
            about["approximate"] = {name: value for name, value in kept.items() if name != "index"}
            index.approximate.write(folder / GRAPH)
            names.append(GRAPH)
    if index.attributes is not None:
        columns |= {f"a/{name}": index.attributes[name].combine_chunks() for name in index.attributes.column_names}
    table = pa.table(columns)
    with pa.ipc.new_file(str(folder / ITEMS), table.schema) as writer:
        writer.write_table(table)
    (folder / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
    return [folder / name for name in names]


def read_index(
    read: Callable[[str], bytes],
    opened: Callable[[str], BinaryIO],
    *,
    approximate: bool = False,
    failed: Callable[[str], Exception] = ValueError,
) -> Index:
    """Read an index. Vectors stay in their file, shared by the processes that read it; a model is not part of it.

    Args:
      read: returns the content of a file of the index, by its name.
      opened: returns an open file of the index, by its name.
      approximate: whether to read FAISS's file. FAISS trusts it: only for an index of your own.
      failed: makes the error of damaged files from a sentence.
    """
    try:
        about = json.loads(read(ABOUT))
        if about["format"] != FORMAT:
            raise ValueError(f"it has format {about['format']}, and this version reads {FORMAT}")
        table = pa.ipc.open_file(pa.py_buffer(read(ITEMS))).read_all()
        table.validate(full=True)
        if int(about["items"]) != table.num_rows or not table.num_rows:
            raise ValueError("its files contradict each other; export again")
        attributes = {name[2:]: table[name] for name in table.column_names if name.startswith("a/")}
        common: dict[str, Any] = {
            "attributes": pa.table(attributes) if attributes else None,
            "item": str(about["item"]),
            "user": None if about["user"] is None else str(about["user"]),
        }
        ids, kind = table[ID].combine_chunks(), about.get("kind", "vectors")
        if approximate and "approximate" not in about:
            raise ValueError("it has no approximate search; write the export with --approximate")
        if kind == "tree":
            parents = table[PARENT].to_numpy().astype(np.int64)
            if parents.min() < 0 or parents.max() >= len(ids):
                raise ValueError("some nodes have a parent that is no node; export again")
            return TreeIndex(ids, parents, **common)
        if kind == "codes":
            return CodeIndex.of(pa.table({common["item"]: ids, CODES: table[CODES]}), inputs=about["inputs"], **common)
        return _vectors(ids, about, opened(VECTORS), (lambda: read(GRAPH)) if approximate else None, common)
    except (OSError, KeyError, TypeError, OverflowError, RecursionError, pa.ArrowException, ValueError) as error:
        raise failed(f"the index of items cannot be read: {error}") from None


def _vectors(
    ids: Any, about: dict[str, Any], file: BinaryIO, graph: Callable[[], bytes] | None, common: dict[str, Any]
) -> ItemIndex:
    count, dim = len(ids), int(about["dim"])
    if dim < 1 or os.fstat(file.fileno()).st_size != 4 * count * dim:
        raise ValueError("its files contradict each other; export again")
    held = None
    if graph is not None:
        kept = about["approximate"]
        if kept["kind"] not in KINDS:
            raise ValueError(f"unknown kind {kept['kind']!r}")
        held = read_approximate(graph(), kept["kind"], int(kept["effort"]), float(kept["recall"]))
    return ItemIndex(ids, np.memmap(file, "<f4", "r", shape=(count, dim)), held, **common)
