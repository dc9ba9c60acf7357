"""The files that benchmarks/train.py trains on, written once by several processes: Parquet, Criteo's text, lists."""

from __future__ import annotations

import concurrent.futures
import functools
import math
import multiprocessing
import os
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FIELDS = 26
MULTI_HOT = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
"""Ids of each feature in an example of MLPerf's DLRM-DCNv2: 214 in all."""


def draw(rng: np.random.Generator, rows: int, count: int) -> np.ndarray[Any, Any]:
    """Ids whose frequency falls as 1 / rank, the ranks spread over the table."""
    rank = np.exp(rng.random(count) * math.log(rows)).astype(np.int64)
    return ((rank * 2654435761) % rows).astype(np.int32)


def write_single(path: pathlib.Path, part: int, rows: int, examples: int, group: int) -> None:
    rng = np.random.default_rng(part)
    columns = {f"id_{i}": draw(rng, rows, examples) for i in range(FIELDS)}
    labels = (rng.random(examples) < 0.25).astype(np.float32)
    pq.write_table(pa.table({"label": labels, **columns}), path / f"{part:03}.parquet", row_group_size=group)


def write_lists(path: pathlib.Path, part: int, rows: int, examples: int, group: int) -> None:
    rng = np.random.default_rng(part)
    columns: dict[str, Any] = {"label": (rng.random(examples) < 0.25).astype(np.float32)}
    for i, length in enumerate(MULTI_HOT):
        offsets = pa.array(np.arange(examples + 1, dtype=np.int32) * length)
        columns[f"id_{i}"] = pa.ListArray.from_arrays(offsets, pa.array(draw(rng, rows, examples * length)))
    pq.write_table(pa.table(columns), path / f"{part:03}.parquet", row_group_size=group)


def write_text(path: pathlib.Path, part: int, rows: int, examples: int, group: int) -> None:
    """Lines of Criteo's form; a few thousand of them, again and again."""
    rng = np.random.default_rng(part)
    distinct = min(examples, 20_000)
    counts = rng.geometric(0.1, (distinct, 13))
    ids = rng.integers(0, 2**32, (distinct, FIELDS)).tolist()
    labels = (rng.random(distinct) < 0.25).astype(int).tolist()
    lines = [
        "\t".join([str(label), *(str(n) if n > 1 else "" for n in row), *(f"{value:08x}" for value in words)]) + "\n"
        for label, row, words in zip(labels, counts.tolist(), ids, strict=True)
    ]
    with (path / f"{part:03}.txt").open("w") as file:
        for begin in range(0, examples, distinct):
            file.writelines(lines[: examples - begin])


STRINGS, INTEGERS = [f"string_{i}" for i in range(12)], [f"integer_{i}" for i in range(8)]
NUMBERS, LISTS = [f"number_{i}" for i in range(13)], [f"list_{i}" for i in range(3)]
BUCKETS, MEAN, LONGEST, USERS = 4, 7, 50, 100_000


def write_mixed(path: pathlib.Path, part: int, rows: int, examples: int, group: int) -> None:
    """Columns of every kind, two labels, weights and users, as benchmarks/mixed.py describes them."""
    rng = np.random.default_rng(part)
    columns: dict[str, Any] = {
        "user": rng.integers(0, USERS, examples),
        "weight": rng.random(examples).astype(np.float32),
        **{label: (rng.random(examples) < 0.25).astype(np.float32) for label in ("click", "buy")},
    }
    for name in STRINGS:
        words = pa.array([f"{name}:{i:x}" for i in range(min(rows, 20_000))])
        columns[name] = words.take(pa.array(draw(rng, len(words), examples)))
    for name in INTEGERS:
        columns[name] = draw(rng, rows, examples).astype(np.int64) * 1_000_003
    for name in NUMBERS:
        columns[name] = pa.array(rng.standard_normal(examples).astype(np.float32), mask=rng.random(examples) < 0.2)
    for name in LISTS:
        lengths = np.minimum(rng.geometric(1 / (MEAN + 1), examples) - 1, LONGEST)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = pa.array(draw(rng, rows, int(offsets[-1])).astype(np.int64) * 1_000_003)
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets), values)
    pq.write_table(pa.table(columns), path / f"{part:03}.parquet", row_group_size=group)


WRITERS = {"single": write_single, "text": write_text, "lists": write_lists, "mixed": write_mixed}


def write(folder: pathlib.Path, workload: str, rows: int, examples: int, group: int, parts: int) -> pathlib.Path:
    """Return the folder of a workload's files, ``examples`` in all."""
    path = folder / workload
    path.mkdir(parents=True)
    work = functools.partial(WRITERS[workload], path, rows=rows, examples=examples // parts, group=group)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(min(parts, os.cpu_count() or 1), mp_context=context) as pool:
        list(pool.map(work, range(parts)))
    return path
