"""One process of the mesh benchmark: a whole step (ids, lookup, gradients, update) on a sharded Embedder.

mesh_ours.py RANK WORLD PORT DEVICES WORKLOAD RULE EXCHANGE STEPS     prints one line of JSON from rank 0

EXCHANGE: pooled, rows, or planned: tables where the planner puts them, for the first batch, as ``sparrow train`` does.
"""

from __future__ import annotations

import json
import os
import sys
import time

import numpy as np

NUM_BATCHES = 16


def main(arguments: list[str]) -> None:
    rank, world, port, devices = map(int, arguments[:4])
    workload_name, rule, exchange, steps = *arguments[4:7], int(arguments[7])
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    import jax

    if world > 1:
        jax.distributed.initialize(f"127.0.0.1:{port}", world, rank, initialization_timeout=60)
    from workloads import WORKLOADS, batches

    import sparrow as sp

    workload = WORKLOADS[workload_name]
    rules = {"SGD": sp.rules.SGD(0.05), "Adagrad": sp.rules.Adagrad(0.05), "Adam": sp.rules.Adam(0.01)}
    tables = [
        sp.TableSpec(
            name=f"t{i}",
            vocabulary_size=workload.rows,
            embedding_dim=workload.dim,
            optimizer=rules[rule],
            initializer=jax.nn.initializers.zeros,
        )
        for i in range(workload.tables)
    ]
    count = world * devices
    mesh = None if count == 1 else jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    features, placement = [sp.FeatureSpec(name=t.name, table_spec=t) for t in tables], "rows"
    if exchange == "planned":
        from sparrow.embedding import choose_placement

        [batch] = batches(workload, 1)
        bags = zip(tables, batch.ids, batch.offsets, strict=True)
        first = {
            t.name: ids if workload.bag == (1, 1) else sp.Ragged(ids, offsets.astype(np.int64))
            for t, ids, offsets in bags
        }
        placement, exchange = choose_placement(sp.Embedder(features), first, count).placements, "auto"
    emb = sp.Embedder(features, mesh=mesh, axis="data", exchange=exchange, placement=placement)
    state = emb.init(jax.random.key(0))

    def mine(batch):
        """Return this process's examples of each table."""
        size = workload.batch // world
        part = slice(rank * size, (rank + 1) * size)
        made = {}
        for i, (ids, offsets) in enumerate(zip(batch.ids, batch.offsets, strict=True)):
            if workload.bag == (1, 1):
                made[f"t{i}"] = np.ascontiguousarray(ids[part])
            else:
                begin, end = offsets[part.start], offsets[part.stop]
                own = (offsets[part.start : part.stop + 1] - begin).astype(np.int64)
                made[f"t{i}"] = sp.Ragged(np.ascontiguousarray(ids[begin:end]), own)
        return made

    inputs = [mine(batch) for batch in batches(workload, NUM_BATCHES)]
    sizes = sp.Sizes()
    packed = [emb.pack(one, sizes=sizes) for one in inputs]
    packed = [emb.pack(one, sizes=sizes) for one in inputs]  # all of the final sizes
    shape = (workload.batch // world, workload.dim)
    grads = {t.name: np.random.default_rng(i).normal(size=shape).astype(np.float32) / 1e3 for i, t in enumerate(tables)}
    grads = jax.device_put(grads) if emb.shards is None else emb.shards.put_parts(grads)

    def step(state, batch, grads):
        batch = emb.exchange(batch)
        acts = emb.lookup(state, batch)
        return emb.update(state, batch, {name: grads[name] + 0 * acts[name] for name in acts})

    run = jax.jit(step, donate_argnums=0)
    ready = jax.block_until_ready
    for i in range(5):
        state = ready(run(state, packed[i], grads))
    meet = barrier(mesh) if world > 1 else lambda: None
    times = {"step": [], "pack": []}
    for i in range(steps):
        meet()  # as the other side does, and not counted either
        start = time.perf_counter()
        state = ready(run(state, packed[i % NUM_BATCHES], grads))
        times["step"].append(time.perf_counter() - start)

    def pack(one):
        """As a training loop does: processes agree on the room inside of an earlier step."""
        if emb.shards is None:
            return jax.device_put(emb.pack(one, sizes=sizes))
        return emb.measure(one).pack(sizes.learned.held)

    for i in range(min(steps, 20)):
        start = time.perf_counter()
        ready(pack(inputs[i % NUM_BATCHES]))
        times["pack"].append(time.perf_counter() - start)
    chosen = "" if emb.shards is None else next(iter(emb.sharded.exchanges.values()))
    bytes_sent = 0 if emb.shards is None else exchanged_bytes(packed[0], workload.dim, count)
    if rank == 0:
        medians = {name: float(np.median(values)) * 1e3 for name, values in times.items()}
        least = 1e3 * sum(map(min, times.values()))
        print(json.dumps({**medians, "least": least, "exchange": chosen, "bytes": bytes_sent}), flush=True)


def barrier(mesh):
    """Return a function that waits for all processes."""
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    split, everywhere = (NamedSharding(mesh, PartitionSpec(axis)) for axis in ("data", None))
    ones = jax.make_array_from_callback((mesh.size,), split, lambda index: np.ones(1, np.float32))
    total = jax.jit(lambda array: array.sum(keepdims=True), out_shardings=everywhere)
    return lambda: jax.block_until_ready(total(ones))


def exchanged_bytes(batch, dim: int, count: int) -> int:
    """Bytes that a device sends to the others in a step."""
    total = 0
    for lookups in batch.lookups.values():
        total += (lookups.block.nbytes // count + 2 * count * lookups.vectors * dim * 4) * (count - 1) // count
    return total


if __name__ == "__main__":
    main(sys.argv[1:])
