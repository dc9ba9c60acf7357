"""The DeepFM of benchmarks/train.py in PyTorch. Runs in a separate environment, and takes commands as JSON lines.

``{"make": {...}}``     builds the model for a workload's files; answers {"kind": what it is made of}
``{"train": workers}``  some passes over the files with ``workers`` processes; answers {"examples_per_second": number}

PyTorch at its best for this model. On a GPU: FBGEMM's tables with row-wise Adagrad inside the backward pass (the wide
part's weights are columns of the same tables), `torch.compile` for the dense part, bfloat16 by autocast, fused Adam,
ids in pinned memory as FBGEMM takes them. On a CPU: all tables of one dim in one `EmbeddingBag(sparse=True)`, torch's
sparse Adagrad, Adam. In both, a `DataLoader` whose processes read with Arrow and hand over complete batches.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import train_peer_data
from torch import nn
from torch.utils.data import DataLoader

if folder := os.environ.get("FBGEMM"):
    sys.path.insert(0, folder)
PASSES = 4  # over the files, at least
LONGEST = 12.0  # seconds
WIDE = 4  # columns of the wide part: FBGEMM's dims are multiples of four


class Dense(nn.Module):
    """Wide, FM and deep parts, added, from the looked-up rows."""

    def __init__(self, fields: int, dim: int, numbers: int, hidden: list[int]) -> None:
        super().__init__()
        self.dim = dim
        widths = [fields * dim + numbers, *hidden]
        layers = [part for a, b in zip(widths, hidden, strict=False) for part in (nn.Linear(a, b), nn.ReLU())]
        self.deep = nn.Sequential(*layers, nn.Linear(widths[-1], 1))

    def forward(self, vectors: torch.Tensor, wide: torch.Tensor, numbers: torch.Tensor, labels: torch.Tensor) -> Any:
        pairs = 0.5 * (vectors.sum(1).square() - vectors.square().sum(1)).sum(1)
        given = vectors.flatten(1)
        if numbers.numel():
            given = torch.cat([given, numbers], 1)
        logits = wide + pairs + self.deep(given)[:, 0]
        return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)


class OnGpu:
    """FBGEMM's tables before the compiled dense part."""

    def __init__(self, fields: int, rows: int, dim: int, batch: int, dense: Dense) -> None:
        from gpu_fbgemm import make_tables_of

        self.fields, self.dim = fields, dim
        self.tables = make_tables_of([rows] * fields, dim + WIDE, "RowwiseAdagrad")
        self.dense = torch.compile(dense)
        self.optimizer = torch.optim.Adam(dense.parameters(), lr=0.001, fused=True)
        self.single = torch.arange(fields * batch + 1, device="cuda", dtype=torch.int64)

    def step(self, ids: torch.Tensor, lengths: torch.Tensor, numbers: torch.Tensor, labels: torch.Tensor) -> None:
        ids, lengths, numbers, labels = (part.cuda(non_blocking=True) for part in (ids, lengths, numbers, labels))
        offsets = self.single
        if lengths.numel():
            offsets = torch.zeros_like(self.single)
            torch.cumsum(lengths, 0, out=offsets[1:])
        rows = self.tables(ids.long(), offsets).view(len(labels), self.fields, self.dim + WIDE)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.dense(rows[:, :, : self.dim], rows[:, :, self.dim].sum(1), numbers, labels)
        loss.backward()
        self.optimizer.step()


class OnCpu:
    """Two sparse `EmbeddingBag`s before the dense part."""

    def __init__(self, fields: int, rows: int, dim: int, batch: int, dense: Dense) -> None:
        self.vectors = nn.EmbeddingBag(fields * rows, dim, mode="sum", sparse=True)
        self.weights = nn.EmbeddingBag(fields * rows, 1, mode="sum", sparse=True)
        for tables in (self.vectors, self.weights):
            nn.init.normal_(tables.weight, std=0.01)
        self.dense, self.starts = dense, torch.arange(fields) * rows
        self.sparse = torch.optim.Adagrad([self.vectors.weight, self.weights.weight], lr=0.01)
        self.optimizer = torch.optim.Adam(dense.parameters(), lr=0.001)

    def step(self, ids: torch.Tensor, lengths: torch.Tensor, numbers: torch.Tensor, labels: torch.Tensor) -> None:
        ids = ids + self.starts
        vectors = self.vectors(ids.reshape(-1, 1)).view(*ids.shape, -1)
        self.sparse.zero_grad(set_to_none=True)
        self.optimizer.zero_grad(set_to_none=True)
        self.dense(vectors, self.weights(ids)[:, 0], numbers, labels).backward()
        self.sparse.step()
        self.optimizer.step()


class Peer:
    """The model and its data."""

    def __init__(
        self, workload: str, path: str, rows: int, examples: int, dim: int, batch: int, hidden: list[int]
    ) -> None:
        torch.manual_seed(0)
        self.batches = max(examples // batch, 1)  # in a pass over the files
        self.on_gpu, fields = torch.cuda.is_available(), train_peer_data.FIELDS
        self.kind = "FBGEMM, compiled" if self.on_gpu else "cpu"
        self.data = train_peer_data.dataset(workload, path, rows, batch, by_feature=self.on_gpu)
        dense = Dense(fields, dim, train_peer_data.COUNTS if workload == "text" else 0, hidden)
        kind = OnGpu if self.on_gpu else OnCpu
        self.model: Any = kind(fields, rows, dim, batch, dense.cuda() if self.on_gpu else dense)

    def train(self, workers: int) -> float:
        """Examples a second, after as many batches as may have been made while the model was compiled.

        As many passes over the files as give twice that number of batches, for at most LONGEST seconds.
        """
        ahead: dict[str, Any] = {"prefetch_factor": 4} if workers else {}
        self.data.passes = max(PASSES, -(-15 * workers // self.batches))
        loader = DataLoader(self.data, batch_size=None, num_workers=workers, pin_memory=self.on_gpu, **ahead)
        began, examples, left_out = 0.0, 0, 5 * workers or 1
        for index, batch in enumerate(loader):
            self.model.step(*batch)
            if index >= left_out:
                examples += len(batch[3])
                if time.perf_counter() - began > LONGEST:
                    break
            elif index == left_out - 1:
                self._wait()
                began = time.perf_counter()
        self._wait()
        if not began:
            raise ValueError("too few batches: the clock never began")
        return examples / (time.perf_counter() - began)

    def _wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()


def main() -> None:
    torch.set_num_threads(2)
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print
    peer: Peer | None = None
    for line in sys.stdin:
        order = json.loads(line)
        try:
            if "make" in order:
                peer = Peer(**order["make"])
                answer: dict[str, Any] = {"kind": peer.kind}
            else:
                assert peer is not None
                answer = {"examples_per_second": peer.train(order["train"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
