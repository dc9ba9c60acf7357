"""One training step of MLPerf's DLRM-DCNv2 on a GPU: Sparrow under one jit, and the same in PyTorch with FBGEMM.

26 features of 1 to 100 ids each, dim 128, tables as in MLPerf with the largest ones cut to `CAP` rows so that both
libraries' tables fit beside each other; bottom 512-256-128, three low-rank cross layers, top 1024-1024-512-256-1,
matrix work in bfloat16, row-wise Adagrad, dense Adam. Inputs lie on the device.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import gpu_dlrm
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gpu_dlrm import BOTTOM, DIM, NUM_DENSE, TOP, mlp
from gpu_workloads import zipf_ids

import sparrow as sp

IDS = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1)
CAP = 16_000_000
_FULL = (
    *(40_000_000, 39_060, 17_295, 7_424, 20_265, 3, 7_122, 1_543, 63, 40_000_000, 3_067_956, 405_282, 10, 2_209),
    *(11_938, 155, 4, 976, 14, 40_000_000, 40_000_000, 40_000_000, 590_152, 12_973, 108, 36),
)
ROWS = tuple(min(rows, CAP) for rows in _FULL)
FEATURES = [f"feature{i}" for i in range(len(IDS))]  # as the stack holds them, so that their rows lie side by side
RANK, CROSS_LAYERS = 512, 3
WIDTH = (len(IDS) + 1) * DIM
LAYERS = [
    *itertools.pairwise((NUM_DENSE, *BOTTOM)),
    *([(WIDTH, RANK), (RANK, WIDTH)] * CROSS_LAYERS),
    *itertools.pairwise((WIDTH, *TOP)),
]


def draw(batch: int, rng: np.random.Generator) -> list[np.ndarray]:
    """(batch, ids) int64 of each feature."""
    return [zipf_ids(rng, rows, (batch, count)) for rows, count in zip(ROWS, IDS, strict=True)]


def loss_fn(params: Any, acts: dict[str, jax.Array], dense: jax.Array, labels: jax.Array) -> jax.Array:
    bottom = mlp(params["bottom"], dense.astype(jnp.bfloat16), last_is_linear=False)
    x0 = x = jnp.concatenate([bottom, *(acts[name] for name in FEATURES)], axis=1)  # (batch, WIDTH)
    for down, up, bias in params["cross"]:
        x = x0 * (x @ down @ up + bias) + x
    logits = mlp(params["top"], x, last_is_linear=True)[:, 0].astype(jnp.float32)
    return optax.sigmoid_binary_cross_entropy(logits, labels).mean()


def init_params(key: jax.Array) -> Any:
    keys = iter(jax.random.split(key, 32))

    def matrix(n: int, m: int) -> jax.Array:
        return jax.random.normal(next(keys), (n, m)) * (1.0 / n) ** 0.5

    def layers(sizes: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
        return [(matrix(n, m), jnp.zeros(m)) for n, m in itertools.pairwise(sizes)]

    cross = [(matrix(WIDTH, RANK), matrix(RANK, WIDTH), jnp.zeros(WIDTH)) for _ in range(CROSS_LAYERS)]
    return {"bottom": layers((NUM_DENSE, *BOTTOM)), "cross": cross, "top": layers((WIDTH, *TOP))}


def jax_step(ids: list[np.ndarray], dense: np.ndarray, labels: np.ndarray) -> Callable[[], Any]:
    """Return a function that enqueues one training step, state donated, and returns its loss."""
    rule = sp.rules.RowwiseAdagrad(learning_rate=0.01)
    tables = [
        sp.TableSpec(name=f"table{i}", vocabulary_size=rows, embedding_dim=DIM, optimizer=rule)
        for i, rows in enumerate(ROWS)
    ]
    embedder = sp.Embedder(
        [sp.FeatureSpec(name=name, table_spec=table) for name, table in zip(FEATURES, tables, strict=True)]
    )
    optimizer = sp.Optimizer(embedder, optax.adam(1e-3), precision="bfloat16")

    @functools.partial(jax.jit, donate_argnums=0, compiler_options=gpu_dlrm.CUBLAS)
    def train(state: Any, inputs: Any, dense: jax.Array, labels: jax.Array) -> tuple[Any, jax.Array]:
        state, info = optimizer.step(state, loss_fn, inputs, dense, labels)
        return state, info.loss

    state = optimizer.init(embedder.init(jax.random.key(0)), init_params(jax.random.key(1)))
    inputs = embedder.pack(dict(zip(FEATURES, ids, strict=True)))
    on_device = jax.device_put((inputs, dense, labels))

    def run() -> Any:
        nonlocal state
        state, loss = train(state, *on_device)
        return loss

    return run


def torch_step(ids: list[np.ndarray], dense: np.ndarray, labels: np.ndarray, compiled: bool) -> Callable[[], Any]:
    """Return the same in PyTorch; ``compiled``: the dense part under torch.compile."""
    import gpu_fbgemm
    import torch
    from torch import nn

    tables = gpu_fbgemm.make_tables_of(list(ROWS), DIM, "RowwiseAdagrad")
    inputs = gpu_fbgemm.make_ragged_inputs(ids)

    class Cross(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Linear(WIDTH, RANK, bias=False)
            self.up = nn.Linear(RANK, WIDTH)

        def forward(self, x0: Any, x: Any) -> Any:
            return x0 * self.up(self.down(x)) + x

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = gpu_dlrm.torch_mlp((NUM_DENSE, *BOTTOM), last_is_linear=False)
            self.cross = nn.ModuleList([Cross() for _ in range(CROSS_LAYERS)])
            self.top = gpu_dlrm.torch_mlp((WIDTH, *TOP), last_is_linear=True)

        def forward(self, pooled: Any, dense: Any, labels: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                x0 = x = torch.cat([self.bottom(dense), pooled.to(torch.bfloat16)], dim=1)
                for cross in self.cross:
                    x = cross(x0, x)
                logits = self.top(x)[:, 0]
            return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)

    return gpu_dlrm.torch_run(Dense(), lambda: tables(*inputs), dense, labels, compiled)


def time_steps(batch: int, with_torch: bool, rounds: int = 5, steps: int = 10) -> dict[str, Any]:
    """Median ms per step of each, measured in turns."""
    rng = np.random.default_rng()
    ids = draw(batch, rng)
    numbers = rng.normal(size=(batch, NUM_DENSE)).astype(np.float32), rng.integers(0, 2, batch).astype(np.float32)
    runs = {"sparrow": jax_step(ids, *numbers)}
    if with_torch:
        runs["torch.compile + FBGEMM"] = torch_step(ids, *numbers, compiled=True)
    result = gpu_dlrm.time_runs(runs, rounds, steps)
    del runs
    return {"batch": batch, "rows": sum(ROWS), **result, "products": gpu_dlrm.time_products(batch, LAYERS)}
