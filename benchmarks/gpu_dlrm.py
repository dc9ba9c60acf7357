"""One DLRM training step on a GPU: Sparrow's kernels under one jit, and the same model in PyTorch with FBGEMM's tables.

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
from gpu_workloads import Workload, draw_ids, make_batch, make_state, make_step

from sparrow.kernels import pallas
from sparrow.rules import RowwiseAdagrad

NUM_DENSE = 13
BOTTOM = (512, 256, 128)
TOP = (1024, 1024, 512, 256, 1)
TABLES, ROWS, DIM = 26, 1_000_000, 128
PAIRS = np.tril_indices(TABLES + 1, -1)


def workload(batch: int) -> Workload:
    return Workload(f"DLRM {batch}", TABLES, ROWS, DIM, batch, 1, 1.05)


def jax_step(batch: int, ids: np.ndarray, dense: np.ndarray, labels: np.ndarray) -> Callable[[], Any]:
    """A function that enqueues one training step, state donated, and returns its loss."""
    load = workload(batch)
    tables = make_batch(load, ids).lookups
    step, scalars = make_step(RowwiseAdagrad(learning_rate=0.01), load)
    optimizer = optax.adam(1e-3)
    keys = iter(jax.random.split(jax.random.key(0), 16))

    def layers(sizes: tuple[int, ...]) -> list[tuple[jax.Array, jax.Array]]:
        return [
            (jax.random.normal(next(keys), (i, o)) * (2.0 / i) ** 0.5, jnp.zeros(o))
            for i, o in itertools.pairwise(sizes)
        ]

    interactions = len(PAIRS[0]) + DIM
    params = {"bottom": layers((NUM_DENSE, *BOTTOM)), "top": layers((interactions, *TOP))}

    def mlp(layers: Any, x: jax.Array, last_is_linear: bool) -> jax.Array:
        for i, (w, b) in enumerate(layers):
            x = x.astype(jnp.bfloat16) @ w.astype(jnp.bfloat16) + b.astype(jnp.bfloat16)
            if not (last_is_linear and i == len(layers) - 1):
                x = jax.nn.relu(x)
        return x

    def loss_of(params: Any, pooled: jax.Array, dense: jax.Array, labels: jax.Array) -> jax.Array:
        bottom = mlp(params["bottom"], dense, last_is_linear=False)  # (batch, dim)
        rows = pooled.reshape(TABLES, batch, DIM).astype(jnp.bfloat16).transpose(1, 0, 2)
        features = jnp.concatenate([bottom[:, None], rows], axis=1)  # (batch, 27, dim)
        products = jnp.einsum("bid,bjd->bij", features, features)
        x = jnp.concatenate([bottom, products[:, PAIRS[0], PAIRS[1]]], axis=1)
        logits = mlp(params["top"], x, last_is_linear=True)[:, 0].astype(jnp.float32)
        return optax.sigmoid_binary_cross_entropy(logits, labels).mean()

    @functools.partial(jax.jit, donate_argnums=(0,))
    def train(state: Any, tables: Any, dense: jax.Array, labels: jax.Array) -> tuple[Any, jax.Array]:
        params, opt_state, table, slots = state
        pooled = pallas.lookup(table, tables)
        loss, (grads, pooled_grads) = jax.value_and_grad(loss_of, argnums=(0, 1))(params, pooled, dense, labels)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        row_grads = pallas.RowGradients(tables.ids, tables.bags, tables.gains, pooled_grads)
        table, slots = pallas.update(step, table, slots, row_grads, scalars)
        return (optax.apply_updates(params, updates), opt_state, table, slots), loss

    table, slots = make_state(step, load.num_rows, 0)
    state = (params, optimizer.init(params), table * 0.05, jax.tree.map(jnp.zeros_like, slots))
    dense_on_device, labels_on_device = jnp.asarray(dense), jnp.asarray(labels)

    def run() -> Any:
        nonlocal state
        state, loss = train(state, tables, dense_on_device, labels_on_device)
        return loss

    return run


def torch_step(batch: int, ids: np.ndarray, dense: np.ndarray, labels: np.ndarray, compiled: bool) -> Callable[[], Any]:
    """The same in PyTorch; ``compiled``: the dense part under torch.compile."""
    import gpu_fbgemm
    import torch
    from torch import nn

    load = workload(batch)
    tables = gpu_fbgemm.make_tables(load, "RowwiseAdagrad")
    inputs = gpu_fbgemm.make_inputs(load, ids)

    def mlp(sizes: tuple[int, ...], last_is_linear: bool) -> nn.Sequential:
        parts: list[nn.Module] = []
        for i, (n, m) in enumerate(itertools.pairwise(sizes)):
            parts.append(nn.Linear(n, m))
            if not (last_is_linear and i == len(sizes) - 2):
                parts.append(nn.ReLU())
        return nn.Sequential(*parts)

    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom = mlp((NUM_DENSE, *BOTTOM), last_is_linear=False)
            self.top = mlp((len(PAIRS[0]) + DIM, *TOP), last_is_linear=True)
            self.register_buffer("pairs", torch.from_numpy(np.stack(PAIRS)))

        def forward(self, pooled: Any, dense: Any, labels: Any) -> Any:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                bottom = self.bottom(dense)
                rows = pooled.view(-1, TABLES, DIM).to(torch.bfloat16)
                features = torch.cat([bottom[:, None], rows], dim=1)
                products = torch.bmm(features, features.transpose(1, 2))
                x = torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], dim=1)
                logits = self.top(x)[:, 0]
            return nn.functional.binary_cross_entropy_with_logits(logits.float(), labels)

    model: Any = Dense().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    forward = torch.compile(model) if compiled else model
    dense_on_device, labels_on_device = torch.from_numpy(dense).cuda(), torch.from_numpy(labels).cuda()

    def run() -> Any:
        loss = forward(tables(*inputs), dense_on_device, labels_on_device)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # updates the tables, too
        optimizer.step()
        return loss

    return run


def _value(loss: Any) -> float:
    return float(loss.detach() if hasattr(loss, "detach") else loss)


def time_steps(batch: int, with_torch: bool, rounds: int = 7, steps: int = 20) -> dict[str, Any]:
    """Median ms per step of each, measured in turns."""
    rng = np.random.default_rng()
    data = (
        draw_ids(workload(batch), rng),
        rng.normal(size=(batch, NUM_DENSE)).astype(np.float32),
        rng.integers(0, 2, batch).astype(np.float32),
    )
    runs = {"sparrow": jax_step(batch, *data)}
    if with_torch:
        runs["torch eager + FBGEMM"] = torch_step(batch, *data, compiled=False)
        runs["torch.compile + FBGEMM"] = torch_step(batch, *data, compiled=True)
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
    return {"batch": batch, "ms": {k: float(np.median(v)) for k, v in times.items()}, "losses": losses}
