"""The DeepFM of benchmarks/train.py in PyTorch. Runs in an environment of its own and takes orders as JSON lines.

``{"make": {...}}``     builds the model for a data file; answers {"kind": its device}
``{"train": workers}``  one pass over the file with ``workers`` processes; answers {"examples_per_second": number}

PyTorch at its best for this model without FBGEMM: all tables of one dim in one `EmbeddingBag(sparse=True)`; a step then
has one lookup and one sparse update for each dim instead of 26; torch's own sparse Adagrad; Adam for the rest; a
`DataLoader` whose process reads row groups with Arrow and hands over complete batches.
"""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Rows(IterableDataset):  # type: ignore[type-arg]
    """Complete batches of a Parquet file, shuffled within each row group."""

    def __init__(self, path: str, fields: int, rows: int, batch: int) -> None:
        self.path, self.batch = path, batch
        self.names = [f"id_{i}" for i in range(fields)]
        self.starts = np.arange(fields, dtype=np.int64) * rows

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        files = [pq.ParquetFile(path) for path in sorted(pathlib.Path(self.path).glob("*.parquet"))]
        groups = [(file, group) for file in files for group in range(file.num_row_groups)]
        rng = np.random.default_rng(0)
        worker = torch.utils.data.get_worker_info()
        order = rng.permutation(len(groups))
        for index in order if worker is None else order[worker.id :: worker.num_workers]:
            file, group = groups[index]
            table = file.read_row_group(group, [*self.names, "label"], use_threads=False)
            order = rng.permutation(table.num_rows)
            ids = np.stack([table[name].to_numpy() for name in self.names], axis=1)[order] + self.starts
            labels = table["label"].to_numpy()[order]
            for at in range(0, len(labels) - self.batch + 1, self.batch):
                stop = at + self.batch
                yield torch.from_numpy(ids[at:stop]), torch.from_numpy(labels[at:stop])


class DeepFM(nn.Module):
    """Wide, FM and deep parts, added."""

    def __init__(self, fields: int, rows: int, dim: int, hidden: list[int]) -> None:
        super().__init__()
        self.vectors = nn.EmbeddingBag(fields * rows, dim, mode="sum", sparse=True)
        self.weights = nn.EmbeddingBag(fields * rows, 1, mode="sum", sparse=True)
        nn.init.normal_(self.vectors.weight, std=0.01)
        nn.init.normal_(self.weights.weight, std=0.01)
        widths = [fields * dim, *hidden]
        layers = [part for a, b in zip(widths, hidden, strict=False) for part in (nn.Linear(a, b), nn.ReLU())]
        self.deep = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, fields = ids.shape
        vectors = self.vectors(ids.reshape(-1, 1)).view(batch, fields, -1)
        wide = self.weights(ids)[:, 0]
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
        return wide + pairs + self.deep(vectors.flatten(1))[:, 0]


class Peer:
    """The model, its optimizers and its data."""

    def __init__(self, path: str, rows: int, dim: int, batch: int, hidden: list[int], fields: int = 26) -> None:
        torch.manual_seed(0)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.data = Rows(path, fields, rows, batch)
        self.model = DeepFM(fields, rows, dim, hidden).to(self.device)
        self.sparse = torch.optim.Adagrad([self.model.vectors.weight, self.model.weights.weight], lr=0.01)
        self.dense = torch.optim.Adam(self.model.deep.parameters(), lr=0.001)

    def train(self, workers: int) -> float:
        """Examples a second over one pass, without the first batch, which waits for the loader to start."""
        ahead: dict[str, Any] = {"prefetch_factor": 4} if workers else {}
        ahead |= {"pin_memory": self.device == "cuda"}
        loader = DataLoader(self.data, batch_size=None, num_workers=workers, **ahead)
        loss_fn = nn.BCEWithLogitsLoss()
        began, examples = 0.0, 0
        for index, (ids, labels) in enumerate(loader):
            ids, labels = (part.to(self.device, non_blocking=True) for part in (ids, labels))
            self.sparse.zero_grad(set_to_none=True)
            self.dense.zero_grad(set_to_none=True)
            loss_fn(self.model(ids), labels).backward()
            self.sparse.step()
            self.dense.step()
            if index == 0:
                self._wait()
                began = time.perf_counter()
            else:
                examples += len(labels)
        self._wait()
        return examples / (time.perf_counter() - began)

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    torch.set_num_threads(2)
    peer: Peer | None = None
    for line in sys.stdin:
        order = json.loads(line)
        if "make" in order:
            peer = Peer(**order["make"])
            answer: dict[str, Any] = {"kind": peer.device}
        else:
            assert peer is not None
            answer = {"examples_per_second": peer.train(order["train"])}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
