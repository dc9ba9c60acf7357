"""FBGEMM's GPU kernels on the same workloads. Needs torch with CUDA and fbgemm_gpu on the path."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gpu_workloads import Workload

HEAD_START = 100_000_000  # clock cycles that the device sleeps while the host fills its queue


def available(path: str | None) -> str | None:
    """Return the reason why FBGEMM cannot run here; None: it can. ``path``: the package's folder, if not installed."""
    if path:
        sys.path.insert(0, path)
    try:
        import torch

        if not torch.cuda.is_available():
            return "torch sees no GPU"
        import fbgemm_gpu  # noqa: F401
        from fbgemm_gpu import split_table_batched_embeddings_ops_training  # noqa: F401
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def versions() -> dict[str, str]:
    import fbgemm_gpu
    import torch

    return {"torch": torch.__version__, "fbgemm_gpu": fbgemm_gpu.__version__}


def make_tables(workload: Workload, rule: str) -> Any:
    """FBGEMM's table-batched embedding bags with the optimizer that corresponds to our rule of that name."""
    return make_tables_of([workload.rows] * workload.num_tables, workload.dim, rule)


def make_tables_of(rows: list[int], dim: int, rule: str) -> Any:
    """Tables of ``rows`` rows each."""
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType, SparseType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    optimizers = {
        "SGD": EmbOptimType.EXACT_SGD,
        "RowwiseAdagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        "Adam": EmbOptimType.ADAM,
        "PartialRowwiseAdam": EmbOptimType.PARTIAL_ROWWISE_ADAM,
    }
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(count, dim, EmbeddingLocation.DEVICE, ComputeDevice.CUDA) for count in rows],
        optimizer=optimizers[rule],
        learning_rate=0.01,
        eps=1e-8,
        weights_precision=SparseType.FP32,
        output_dtype=SparseType.FP32,
        stochastic_rounding=False,
        pooling_mode=PoolingMode.SUM,
        bounds_check_mode=BoundsCheckMode.NONE,
        device=torch.device("cuda"),
    )
    tables.init_embedding_weights_uniform(-0.05, 0.05)
    return tables


def make_inputs(workload: Workload, ids: np.ndarray) -> tuple[Any, Any]:
    """Return indices and offsets as FBGEMM takes them: table by table, bag by bag."""
    import torch

    indices = torch.from_numpy(ids.reshape(-1)).cuda()
    bags = workload.num_tables * workload.batch
    return indices, torch.arange(bags + 1, device="cuda", dtype=torch.int64) * workload.bag


def make_ragged_inputs(ids: list[np.ndarray]) -> tuple[Any, Any]:
    """Return indices and offsets of features with (batch, count) ids each."""
    import torch

    indices = torch.from_numpy(np.concatenate([column.reshape(-1) for column in ids])).cuda()
    lengths = np.concatenate([np.full(len(column), column.shape[1]) for column in ids])
    return indices, torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)])).cuda()


def time_steps(tables: Any, inputs: tuple[Any, Any], repeats: int) -> tuple[list[float], list[float]]:
    """(lookup, backward with update) in ms, one value per step, of device time.

    The host fills the device's queue while the device sleeps, so that FBGEMM's Python overhead does not count.
    """
    import torch

    output = tables(*inputs)
    grad = torch.randn_like(output)
    output.backward(grad)
    torch.cuda.synchronize()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(4)] for _ in range(repeats)]
    torch.cuda._sleep(HEAD_START)
    for before, looked_up, backward, done in events:
        before.record()
        output = tables(*inputs)
        looked_up.record()
        backward.record()
        output.backward(grad)
        done.record()
    torch.cuda.synchronize()
    lookups = [before.elapsed_time(looked_up) for before, looked_up, _, _ in events]
    updates = [backward.elapsed_time(done) for _, _, backward, done in events]
    return lookups, updates


def time_calls(tables: Any, inputs: tuple[Any, Any], repeats: int) -> float:
    """Ms per whole step as a training loop sees it, Python included."""
    import time

    import torch

    output = tables(*inputs)
    grad = torch.randn_like(output)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(repeats):
        tables(*inputs).backward(grad)
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin) / repeats
