"""Batches for PyTorch's side of benchmarks/train.py: datasets whose worker processes hand over complete batches.

A batch is (ids, lengths, numbers, labels). On a GPU, ids are int32, feature by feature, as FBGEMM takes them; lengths
are the ids of each bag, or empty where each bag holds one. On a CPU ids are int64, (batch, features).
"""

from __future__ import annotations

import io
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import torch
from torch.utils.data import IterableDataset, get_worker_info

FIELDS, COUNTS = 26, 13
BLOCK = 2**25  # bytes of text that are parsed at a time: the lines of a large batch, at least
NONE = np.zeros(0, np.int32)


def dataset(workload: str, path: str, rows: int, batch: int, by_feature: bool) -> Batches:
    return {"single": Single, "lists": Lists, "text": Text}[workload](path, rows, batch, by_feature)


class Batches(IterableDataset):  # type: ignore[type-arg]
    """Batches of all files of a folder, shuffled within each row group or block; a part for each worker."""

    def __init__(self, path: str, rows: int, batch: int, by_feature: bool) -> None:
        self.files = sorted(pathlib.Path(path).iterdir())
        self.rows, self.batch, self.by_feature = rows, batch, by_feature
        self.passes = 1  # over the files

    def pieces(self) -> Sequence[Any]:
        """Return all row groups or blocks."""
        raise NotImplementedError

    def table(self, piece: Any) -> pa.Table:
        """Return the rows of one of them."""
        raise NotImplementedError

    def batches(self, table: pa.Table, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any, Any]]:
        """Yield all batches of some rows, as NumPy arrays."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        pieces, worker, rng = self.pieces(), get_worker_info(), np.random.default_rng(0)
        order = np.concatenate([rng.permutation(len(pieces)) for _ in range(self.passes)])
        for index in order if worker is None else order[worker.id :: worker.num_workers]:
            for batch in self.batches(self.table(pieces[index]), rng):
                yield tuple(torch.from_numpy(np.require(part, requirements="CW")) for part in batch)

    def _ids(self, columns: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return ids from (features, batch)."""
        return columns.reshape(-1) if self.by_feature else columns.T.astype(np.int64)


class Single(Batches):
    """A Parquet column of integers for each feature."""

    def pieces(self) -> Sequence[Any]:
        files = [pq.ParquetFile(path) for path in self.files]
        return [(file, group) for file in files for group in range(file.num_row_groups)]

    def table(self, piece: Any) -> pa.Table:
        file, group = piece
        return file.read_row_group(group, [*(f"id_{i}" for i in range(FIELDS)), "label"], use_threads=False)

    def batches(self, table: pa.Table, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any, Any]]:
        order = rng.permutation(table.num_rows)
        ids = np.stack([table[f"id_{i}"].to_numpy()[order] for i in range(FIELDS)])
        labels = table["label"].to_numpy()[order]
        for at in range(0, len(labels) - self.batch + 1, self.batch):
            yield self._ids(ids[:, at : at + self.batch]), NONE, NONE, labels[at : at + self.batch]


class Lists(Single):
    """A Parquet column of lists for each feature. Arrow shuffles the rows."""

    def batches(self, table: pa.Table, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any, Any]]:
        table = table.combine_chunks().take(pa.array(rng.permutation(table.num_rows)))
        for at in range(0, table.num_rows - self.batch + 1, self.batch):
            lists = [table[f"id_{i}"].slice(at, self.batch).combine_chunks() for i in range(FIELDS)]
            ids = np.concatenate([column.flatten().to_numpy() for column in lists])
            lengths = np.concatenate([column.value_lengths().to_numpy() for column in lists])
            yield ids, lengths, NONE, table["label"].slice(at, self.batch).to_numpy()


class Text(Batches):
    """Criteo's lines. Categories are eight hexadecimal digits: their number modulo the rows of a table."""

    def pieces(self) -> Sequence[Any]:
        return [(path, at) for path in self.files for at in range(0, path.stat().st_size, BLOCK)]

    def table(self, piece: Any) -> pa.Table:
        path, begin = piece
        with path.open("rb") as file:
            if begin:
                file.seek(begin - 1)
                file.readline()  # the rest of a line that the block before it has
            start = file.tell()
            data = file.read(max(begin + BLOCK - start, 0)) + file.readline()
        names = ["label", *(f"count_{i}" for i in range(COUNTS)), *(f"id_{i}" for i in range(FIELDS))]
        kinds: dict[str, pa.DataType] = {f"id_{i}": pa.string() for i in range(FIELDS)}
        kinds |= {name: pa.float32() for name in names[: 1 + COUNTS]}
        return csv.read_csv(
            io.BytesIO(data),
            csv.ReadOptions(use_threads=False, column_names=names, block_size=2 * BLOCK),
            csv.ParseOptions(delimiter="\t", quote_char=False),
            csv.ConvertOptions(column_types=kinds, strings_can_be_null=True),
        ).combine_chunks()

    def batches(self, table: pa.Table, rng: np.random.Generator) -> Iterator[tuple[Any, Any, Any, Any]]:
        order = rng.permutation(table.num_rows)
        ids = np.stack([_numbers(table[f"id_{i}"].chunk(0), self.rows)[order] for i in range(FIELDS)])
        counts = [table[f"count_{i}"].fill_null(0).to_numpy()[order] for i in range(COUNTS)]
        numbers = np.log1p(np.maximum(np.stack(counts, axis=1), 0))
        labels = table["label"].to_numpy()[order]
        for at in range(0, len(labels) - self.batch + 1, self.batch):
            stop = at + self.batch
            yield self._ids(ids[:, at:stop]), NONE, numbers[at:stop], labels[at:stop]


def _numbers(texts: pa.StringArray, rows: int) -> np.ndarray[Any, Any]:
    """Return the numbers of strings of eight hexadecimal digits, of which none is missing."""
    _, offsets, data = texts.buffers()
    begin, end = np.frombuffer(offsets, np.int32)[[texts.offset, texts.offset + len(texts)]]
    digits = np.frombuffer(data, np.uint8)[begin:end].reshape(len(texts), 8)
    values = (digits & 15) + 9 * (digits >> 6)
    packed = (values[:, 0::2] << 4 | values[:, 1::2]).astype(np.uint8)
    return (packed.view(">u4")[:, 0] % rows).astype(np.int32)
