"""DLRM's step on a mesh: the cost of a mesh of one GPU, and the program that XLA makes for eight GPUs.

The eight are a description of a topology, not devices: XLA compiles for them, and nothing runs.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import gpu_dlrm
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import topologies
from jax.sharding import Mesh

import sparrow as sp
from sparrow.optimizer import OptimizerState

COLLECTIVES = ("all-to-all", "all-reduce", "all-gather", "collective-permute", "reduce-scatter")
DEVICES = 8


def mesh_of_one(batch: int) -> dict[str, Any]:
    """Median ms per step without a mesh and on a mesh of size 1, measured in turns."""
    data = gpu_dlrm.draw(batch)
    mesh = jax.make_mesh((1,), ("data",))
    runs = {"no mesh": gpu_dlrm.jax_step(*data), "mesh of one": gpu_dlrm.jax_step(*data, mesh)}
    return {"batch": batch, **gpu_dlrm.time_runs(runs, rounds=9, steps=20)}


def topology(target_config: str | None = None) -> Mesh:
    """Return a mesh of `DEVICES` GPUs in one host, of this machine's kind or as ``target_config`` describes them."""
    options = {"target_config": target_config} if target_config else {}
    described = topologies.get_topology_desc(platform="cuda", topology=f"1x1x{DEVICES}", **options)
    return Mesh(np.array(described.devices), ("data",))


def program(exchange: str, mesh: Mesh, batch: int = 8192) -> dict[str, Any]:
    """Compile the step for the devices of ``mesh``, and count its collectives, by kind, and copies of a table."""
    embedder = gpu_dlrm.make_embedder(mesh, exchange=exchange)
    optimizer = sp.Optimizer(embedder, optax.adam(1e-3), precision="bfloat16")
    split, everywhere = embedder.shards.split_sharding, embedder.shards.everywhere

    def on(sharding: Any, tree: Any) -> Any:
        """Return the shapes of ``tree``, split by ``sharding``; numbers are everywhere."""
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype, sharding=sharding if np.ndim(x) else everywhere), tree
        )

    key = jax.random.key(0)
    embedding = on(split, jax.eval_shape(embedder.init, key))
    params = on(everywhere, jax.eval_shape(gpu_dlrm.init_params, key))
    state = jax.eval_shape(lambda params: (optimizer.tx.init(params), jnp.zeros((), jnp.int32)), params)
    dense, skipped = on(everywhere, state)
    state = OptimizerState(embedding, params, dense, None, None, skipped)
    ids, numbers, labels = gpu_dlrm.draw(batch)
    routed = embedder.measure(dict(zip(gpu_dlrm.FEATURES, ids, strict=True)))
    described = dataclasses.replace(routed, put=lambda arrays: on(split, arrays))
    inputs = described.pack(sp.Sizes().fit(described.loose))

    def step(state: Any, inputs: Any, dense: Any, labels: Any) -> Any:
        return optimizer.step(state, gpu_dlrm.loss_fn, inputs, dense, labels)

    lowered = jax.jit(step, donate_argnums=0).lower(state, inputs, *on(split, (numbers, labels)))
    compiled = lowered.compile()
    text = compiled.as_text()
    (stack,) = embedder.stacks
    rows = embedder.sharded.layouts[stack.name].local_rows
    counts = {kind: len(re.findall(rf"= [^=]* {kind}(?:-start)?\(", text)) for kind in COLLECTIVES}
    copies = len(re.findall(rf"= f32\[{rows},{gpu_dlrm.DIM}\][^ ]* copy\(", text))
    memory = compiled.memory_analysis()
    return {
        "exchange": exchange,
        "devices": mesh.size,
        "stacks": 1,
        **counts,
        "copies of a table": copies,
        "temporary bytes": None if memory is None else memory.temp_size_in_bytes,
    }


def report() -> dict[str, Any]:
    """Return all figures of this file."""
    mesh = topology()
    return {
        "programs": [program(exchange, mesh) for exchange in ("pooled", "rows")],
        "mesh of one": [mesh_of_one(batch) for batch in (8192, 65536)],
    }
