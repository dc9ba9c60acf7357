"""An index in a folder: vectors that are mapped and not read, ids and attributes in Arrow, and what was measured."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparrow.retrieval.approximate import KINDS, read_approximate
from sparrow.retrieval.index import ItemIndex

VECTORS: Final = "vectors.f32"
"""The vectors, row after row, as little-endian float32."""
ITEMS: Final = "items.arrow"
ABOUT: Final = "index.json"
GRAPH: Final = "faiss.index"
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
    if index.approximate is not None:
        kept = dataclasses.asdict(dataclasses.replace(index.approximate, index=None))
        about["approximate"] = {name: value for name, value in kept.items() if name != "index"}
        index.approximate.write(folder / GRAPH)
    (folder / ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
    names = (VECTORS, ITEMS, ABOUT, *((GRAPH,) if index.approximate is not None else ()))
    return [folder / name for name in names]


def read_index(
    folder: Path, *, approximate: bool = False, failed: Callable[[str], Exception] = ValueError
) -> ItemIndex:
    """Read an index. Vectors stay in their file, shared by the processes that read it; damage raises ``failed``.

    ``approximate``: whether to read FAISS's file, if there is one. FAISS trusts it: only for an index of your own.
    """
    try:
        about = json.loads((folder / ABOUT).read_bytes())
        if about["format"] != FORMAT:
            raise failed(f"{folder}: the index has format {about['format']}; this version reads {FORMAT}")
        table = pa.ipc.open_file(pa.memory_map(str(folder / ITEMS))).read_all()
        count, dim = int(about["items"]), int(about["dim"])
        size = (folder / VECTORS).stat().st_size
        if min(count, dim) < 1 or table.num_rows != count or size != 4 * count * dim:
            raise failed(f"{folder}: the files of the index contradict each other; export it again")
        table.validate(full=True)
        vectors = np.memmap(folder / VECTORS, "<f4", "r", shape=(count, dim))
        attributes = {name[2:]: table[name] for name in table.column_names if name.startswith("a/")}
        graph = None
        if approximate and (held := about.get("approximate")) is not None:
            if held["kind"] not in KINDS:
                raise failed(f"{folder}: unknown kind of index {held['kind']!r}")
            effort, recall = int(held["effort"]), float(held["recall"])
            graph = read_approximate((folder / GRAPH).read_bytes(), held["kind"], effort, recall)
        return ItemIndex(
            table[ID].combine_chunks(), vectors, pa.table(attributes) if attributes else None, approximate=graph
        )
    except (OSError, KeyError, TypeError, pa.ArrowException, ValueError) as error:
        if type(error) is failed:
            raise
        raise failed(f"{folder}: the index cannot be read: {error}") from None
