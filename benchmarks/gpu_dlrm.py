"""One DLRM training step on a GPU: Sparrow as a user writes it, under one jit, and the same model in PyTorch with
FBGEMM's tables.

26 tables of one million rows, dim 128, one id a bag, row-wise Adagrad; bottom 512-256-128, dot interaction, top
1024-1024-512-256-1, matrix work in bfloat16, dense Adam. Inputs lie on the device. Times are as a training
loop sees them.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gpu_workloads import Workload, draw_ids

import sparrow as sp
from sparrow.models import pairwise_dots
from sparrow.models.layers.mlp import relu

NUM_DENSE = 13
BOTTOM = (512, 256, 128)
TOP = (1024, 1024, 512, 256, 1)
TABLES, ROWS, DIM = 26, 1_000_000, 128
FEATURES = [f"feature{i}" for i in range(TABLES)]  # as the stack holds them, so that their rows need no copy
VECTORS = TABLES + 1  # one of each table, and the bottom network's
PAIRS = np.tril_indices(VECTORS, -1)
NUM_PAIRS = len(PAIRS[0])
PAIR_OF = np.full((VECTORS, VECTORS), NUM_PAIRS)  # which pair two vectors make; NUM_PAIRS: none
PAIR_OF[PAIRS] = PAIR_OF[PAIRS[::-1]] = np.arange(NUM_PAIRS)


def workload(batch: int) -> Workload:
    return Workload(f"DLRM {batch}", TABLES, ROWS, DIM, batch, 1, 1.05)


def mlp(layers: Any, x: jax.Array, last_is_linear: bool) -> jax.Array:
    for i, (w, b) in enumerate(layers):
        x = x @ w + b
        if not (last_is_linear and i == len(layers) - 1):
            x = relu(x)
    return x


def loss_fn(params: Any, acts: dict[str, jax.Array], dense: jax.Array, labels: jax.Array) -> jax.Array:
    bottom = mlp(params["bottom"], dense.astype(jnp.bfloat16), last_is_linear=False)  # (batch, dim)
    rows = jnp.concatenate([acts[name] for name in FEATURES], axis=1).reshape(-1, TABLES, DIM)
    x = jnp.concatenate([bottom, pairwise_dots(bottom[:, None], rows)], axis=1)
    logits = mlp(params["top"], x, last_is_linear=True)[:, 0].astype(jnp.float32)
    return optax.sigmoid_binary_cross_entropy(logits, labels).mean()


def init_params(key: jax.Array) -> Any:
    keys = iter(jax.random.split(key, 16))

    def layers(sizes: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
        return [
            (jax.random.normal(next(keys), (i, o)) * (2.0 / i) ** 0.5, jnp.zeros(o))
            for i, o in itertools.pairwise(sizes)
        ]

    return {"bottom": layers((NUM_DENSE, *BOTTOM)), "top": layers((NUM_PAIRS + DIM, *TOP))}


CUBLAS = {"xla_gpu_enable_triton_gemm": False}
"""An option of XLA's: all matrix products go to cuBLAS, which adds the bias and takes the maximum, too."""


def make_embedder(mesh: Any = None, **options: Any) -> sp.Embedder:
    """Return the tables, on the devices of ``mesh`` where one is given."""
    rule = sp.rules.RowwiseAdagrad(learning_rate=0.01)
    tables = [
        sp.TableSpec(name=f"table{i}", vocabulary_size=ROWS, embedding_dim=DIM, optimizer=rule) for i in range(TABLES)
    ]
    features = [sp.FeatureSpec(name=name, table_spec=table) for name, table in zip(FEATURES, tables, strict=True)]
    return sp.Embedder(features, mesh=mesh, **options)


def jax_step(
    ids: np.ndarray, dense: np.ndarray, labels: np.ndarray, mesh: Any = None, options: Any = CUBLAS
) -> Callable[[], Any]:
    """Return a function that enqueues one training step, state donated, and returns its loss.

    ``options``: ``compiler_options`` of ``jax.jit``.
    """
    embedder = make_embedder(mesh)
    optimizer = sp.Optimizer(embedder, optax.adam(1e-3), precision="bfloat16")

    @functools.partial(jax.jit, donate_argnums=0, compiler_options=options)
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


def torch_mlp(sizes: tuple[int, ...], last_is_linear: bool) -> Any:
    """As `mlp`."""
    from torch import nn

    parts: list[nn.Module] = []
    for i, (n, m) in enumerate(itertools.pairwise(sizes)):
        parts.append(nn.Linear(n, m))
        if not (last_is_linear and i == len(sizes) - 2):
            parts.append(nn.ReLU())
    return nn.Sequential(*parts)


def torch_run(
    dense_part: Any, lookup: Callable[[], Any], dense: np.ndarray, labels: np.ndarray, compiled: bool
) -> Callable[[], Any]:
    """Return a step of PyTorch: ``dense_part(pooled, dense, labels)`` is the loss, ``lookup()`` the pooled rows."""
    import torch

    model = dense_part.cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    forward = torch.compile(model) if compiled else model
    dense_on_device, labels_on_device = torch.from_numpy(dense).cuda(), torch.from_numpy(labels).cuda()

    def run() -> Any:
        loss = forward(lookup(), dense_on_device, labels_on_device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # updates the tables, too
        optimizer.step()
        return loss

    return run


def torch_step(
    batch: int, ids: np.ndarray, dense: np.ndarray, labels: np.ndarray, compiled: bool, own_backward: bool
) -> Callable[[], Any]:
    """Return the same step in PyTorch.

    ``compiled``: the dense part under torch.compile. ``own_backward``: the interaction's backward pass written out, as
    in `pairwise_dots`, instead of autograd's own.
    """
    import gpu_fbgemm
    import torch
    from torch import nn

    load = workload(batch)
    tables = gpu_fbgemm.make_tables(load, "RowwiseAdagrad")
    inputs = gpu_fbgemm.make_inputs(load, ids)

    class PairwiseDots(torch.autograd.Function):
        """Compute as `pairwise_dots` does."""

        @staticmethod
        def forward(ctx: Any, vectors: Any, pairs: Any, pair_of: Any) -> Any:
            ctx.save_for_backward(vectors, pair_of)
            return torch.bmm(vectors, vectors.transpose(1, 2))[:, pairs[0], pairs[1]]

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            vectors, pair_of = ctx.saved_tensors
            symmetric = nn.functional.pad(grad, (0, 1))[:, pair_of]
            return torch.bmm(symmetric, vectors), None, None

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = torch_mlp((NUM_DENSE, *BOTTOM), last_is_linear=False)
            self.top = torch_mlp((NUM_PAIRS + DIM, *TOP), last_is_linear=True)
            self.register_buffer("pairs", torch.from_numpy(np.stack(PAIRS)))
            self.register_buffer("pair_of", torch.from_numpy(PAIR_OF))

        def interact(self, vectors: Any) -> Any:
            if own_backward:
                return PairwiseDots.apply(vectors, self.pairs, self.pair_of)
            return torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]

        def forward(self, pooled: Any, dense: Any, labels: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                bottom = self.bottom(dense)
                rows = pooled.view(-1, TABLES, DIM).to(torch.bfloat16)
                vectors = torch.cat([bottom[:, None], rows], dim=1)
                x = torch.cat([bottom, self.interact(vectors)], dim=1)
                logits = self.top(x)[:, 0]
            return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)

    return torch_run(Dense(), lambda: tables(*inputs), dense, labels, compiled)


LAYERS = [*itertools.pairwise((NUM_DENSE, *BOTTOM)), *itertools.pairwise((NUM_PAIRS + DIM, *TOP))]


def time_products(batch: int, layers: Any = LAYERS, rounds: int = 5, calls: int = 10) -> dict[str, float]:
    """Ms of the matrix products of a step alone, and their number of operations: a floor under every implementation.

    Each layer of ``layers``, (inputs, outputs), has three: forward, gradient of its input, gradient of its matrix.
    """
    keys = iter(jax.random.split(jax.random.key(0), 3 * len(layers)))

    def normal(*shape: int) -> jax.Array:
        return jax.random.normal(next(keys), shape, jnp.bfloat16)

    arrays = [(normal(batch, n), normal(n, m), normal(batch, m)) for n, m in layers]

    @functools.partial(jax.jit, compiler_options=CUBLAS)
    def products(arrays: Any) -> Any:
        return [(x @ w, g @ w.T, x.T @ g) for x, w, g in arrays]

    jax.block_until_ready(products(arrays))
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            result = products(arrays)
        jax.block_until_ready(result)
        times.append(1e3 * (time.perf_counter() - begin) / calls)
    operations = sum(6 * batch * n * m for n, m in layers)
    ms = float(np.median(times))
    return {"ms": ms, "TFLOP": operations / 1e12, "TFLOP/s": operations / ms / 1e9}


def _value(loss: Any) -> float:
    return float(loss.detach() if hasattr(loss, "detach") else loss)


def draw(batch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids, the numbers and the labels of a batch."""
    rng = np.random.default_rng()
    ids = draw_ids(workload(batch), rng)
    return ids, rng.normal(size=(batch, NUM_DENSE)).astype(np.float32), rng.integers(0, 2, batch).astype(np.float32)


def time_steps(batch: int, with_torch: bool, rounds: int = 7, steps: int = 20, quick: bool = False) -> dict[str, Any]:
    """Median ms per step of each, measured in turns; ``quick``: without XLA's defaults and PyTorch's eager mode."""
    data = draw(batch)
    runs = {"sparrow": jax_step(*data)}
    if not quick:
        runs["sparrow, XLA's defaults"] = jax_step(*data, options=None)
    if with_torch:
        kinds = [("torch eager + FBGEMM", False)] * (not quick) + [("torch.compile + FBGEMM", True)]
        for name, compiled in kinds:
            runs[name] = torch_step(batch, *data, compiled, own_backward=False)
            runs[f"{name}, own backward"] = torch_step(batch, *data, compiled, own_backward=True)
    return {"batch": batch, **time_runs(runs, rounds, steps), "products": time_products(batch)}


def time_runs(runs: dict[str, Callable[[], Any]], rounds: int, steps: int) -> dict[str, Any]:
    """Median ms per step of each, measured in turns, and the losses."""
    losses = {name: [_value(run()) for _ in range(3)] for name, run in runs.items()}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.perf_counter()
            for _ in range(steps):
                loss = run()
            value = _value(loss)  # waits for the device
            times[name].append(1e3 * (time.perf_counter() - begin) / steps)
            losses[name].append(value)
    return {"ms": {k: float(np.median(v)) for k, v in times.items()}, "losses": losses}
