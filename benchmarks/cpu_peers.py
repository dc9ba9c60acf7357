"""FBGEMM and PyTorch, for benchmarks/cpu.py. Runs in a separate environment, and takes commands as JSON lines.

``{"make": [workload, peer, optimizer]}``   sets a peer up; answers {"ok": true} or {"error": why}
``{"run": operation, "block": [i, ..], "threads": n, "warm_up": seconds}``
                                            runs "lookup" or "step" on each; answers {"seconds": [time, ..]}
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from workloads import WORKLOADS, Batch, Workload, after_warm_up, batches

LEARNING_RATE = 0.01


class TorchBags:
    """`torch.nn.EmbeddingBag(sparse=True)`, one per table, with torch's own sparse optimizer."""

    def __init__(self, workload: Workload, optimizer: str, data: list[Batch]) -> None:
        makers: dict[str, Callable[..., Any]] = {
            "SGD": torch.optim.SGD,
            "Adagrad": torch.optim.Adagrad,
            "Adam": torch.optim.SparseAdam,
        }
        self.bags = []
        for _ in range(workload.tables):
            weight = torch.empty(workload.rows, workload.dim).uniform_(-0.01, 0.01)
            self.bags.append(torch.nn.EmbeddingBag.from_pretrained(weight, freeze=False, mode="sum", sparse=True))
        parameters = [bag.weight for bag in self.bags]
        self.optimizer = makers[optimizer](parameters, lr=LEARNING_RATE)
        self.inputs = [
            [(torch.from_numpy(i), torch.from_numpy(o[:-1].copy())) for i, o in zip(b.ids, b.offsets, strict=True)]
            for b in data
        ]
        self.grad = torch.randn(workload.batch, workload.dim) * 1e-3

    def lookup(self, batch: int) -> None:
        with torch.no_grad():
            for bag, (ids, offsets) in zip(self.bags, self.inputs[batch], strict=True):
                bag(ids, offsets)

    def step(self, batch: int) -> None:
        outputs = [bag(ids, offsets) for bag, (ids, offsets) in zip(self.bags, self.inputs[batch], strict=True)]
        torch.autograd.backward(outputs, [self.grad] * len(outputs))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Fbgemm:
    """FBGEMM's fused table-batched bags: only the sort uses torch's threads."""

    parts = 1

    def __init__(self, workload: Workload, optimizer: str, data: list[Batch]) -> None:
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )

        kinds = {
            "SGD": EmbOptimType.EXACT_SGD,
            "Adagrad": EmbOptimType.EXACT_ADAGRAD,
            "RowwiseAdagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        }
        self.modules, self.inputs, self.grads = [], [], []
        for tables in np.array_split(np.arange(workload.tables), min(self.parts, workload.tables)):
            spec = (workload.rows, workload.dim, EmbeddingLocation.HOST, ComputeDevice.CPU)
            module = SplitTableBatchedEmbeddingBagsCodegen(
                [spec] * len(tables),
                optimizer=kinds[optimizer],
                learning_rate=LEARNING_RATE,
                eps=1e-8,
                bounds_check_mode=BoundsCheckMode.NONE,
            )
            for weight in module.split_embedding_weights():
                weight.data.uniform_(-0.01, 0.01)
            self.modules.append(module)
            self.inputs.append([self._flat(batch, tables) for batch in data])
            self.grads.append(torch.randn(workload.batch, len(tables) * workload.dim) * 1e-3)

    @staticmethod
    def _flat(batch: Batch, tables: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and offsets of several tables in one, as FBGEMM takes them."""
        ids = np.concatenate([batch.ids[t] for t in tables]).astype(np.int64)
        starts = np.cumsum([0, *(len(batch.ids[t]) for t in tables)])
        offsets = [batch.offsets[t][:-1] + starts[i] for i, t in enumerate(tables)]
        return torch.from_numpy(ids), torch.from_numpy(np.concatenate([*offsets, starts[-1:]]).astype(np.int64))

    def _part_lookup(self, part: int, batch: int) -> None:
        with torch.no_grad():
            self.modules[part](*self.inputs[part][batch])

    def _part_step(self, part: int, batch: int) -> None:
        self.modules[part](*self.inputs[part][batch]).backward(self.grads[part])

    def lookup(self, batch: int) -> None:
        self._run(self._part_lookup, batch)

    def step(self, batch: int) -> None:
        self._run(self._part_step, batch)

    def _run(self, part: Callable[[int, int], None], batch: int) -> None:
        others = [threading.Thread(target=part, args=(i, batch)) for i in range(1, len(self.modules))]
        for thread in others:
            thread.start()
        part(0, batch)
        for thread in others:
            thread.join()


class FbgemmTwice(Fbgemm):
    """Two FBGEMM modules with half of the tables each, on two Python threads: its fairest form on two cores."""

    parts = 2


PEERS = {"torch": TorchBags, "fbgemm": Fbgemm, "fbgemm 2x1": FbgemmTwice}


def timed(run: Callable[[int], None]) -> Callable[[int], float]:
    """Return the seconds of one run."""

    def timed_run(batch: int) -> float:
        started = time.perf_counter()
        run(batch)
        return time.perf_counter() - started

    return timed_run


def main() -> None:
    peer: Any = None
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any] = {"ok": True}
        try:
            if "make" in order:
                name, kind, optimizer = order["make"]
                workload = WORKLOADS[name]
                peer = PEERS[kind](workload, optimizer, batches(workload))
            else:
                torch.set_num_threads(order["threads"])
                run = timed(getattr(peer, order["run"]))
                answer = {"seconds": after_warm_up(run, order["block"], order["warm_up"])}
        except Exception as error:  # the driver decides what a failure means
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
