"""One process of the mesh benchmark for TorchRec: gloo, one thread, fused optimizer.

mesh_torchrec.py RANK WORLD PORT WORKLOAD RULE SHARDING STEPS         prints one line of JSON from rank 0

SHARDING: row_wise, table_wise, or planned: the choice of its planner.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings

import numpy as np

NUM_BATCHES = 16


def main(arguments: list[str]) -> None:
    rank, world, port = map(int, arguments[:3])
    workload_name, rule, sharding, steps = *arguments[3:6], int(arguments[6])
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(world),
        "OMP_NUM_THREADS": "1",
    }
    warnings.filterwarnings("ignore")
    import torch
    import torch.distributed as dist
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.planner import EmbeddingShardingPlanner, Topology
    from torchrec.distributed.planner.types import ParameterConstraints
    from torchrec.distributed.types import ShardingEnv
    from torchrec.modules.embedding_configs import EmbeddingBagConfig
    from torchrec.modules.embedding_modules import EmbeddingBagCollection
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
    from torchrec.sparse.jagged_tensor import KeyedJaggedTensor
    from workloads import WORKLOADS, batches

    torch.set_num_threads(1)
    workload = WORKLOADS[workload_name]
    dist.init_process_group("gloo", rank=rank, world_size=world)
    group = dist.group.WORLD
    names = [f"t{i}" for i in range(workload.tables)]
    tables = [
        EmbeddingBagConfig(
            name=name, embedding_dim=workload.dim, num_embeddings=workload.rows, feature_names=[f"f_{name}"]
        )
        for name in names
    ]
    collection = EmbeddingBagCollection(tables=tables, device=torch.device("meta"))
    kinds = {"SGD": (torch.optim.SGD, {"lr": 0.05}), "Adagrad": (torch.optim.Adagrad, {"lr": 0.05, "eps": 1e-8})}
    kind, hyper = kinds[rule]
    apply_optimizer_in_backward(kind, collection.parameters(), hyper)

    class Sharder(EmbeddingBagCollectionSharder):
        """The planner offers row_wise on CUDA only; ask for it all the same."""

        def sharding_types(self, compute_device_type):
            return super().sharding_types(compute_device_type) if sharding == "planned" else [sharding]

    types = None if sharding == "planned" else [sharding]
    constraints = {name: ParameterConstraints(sharding_types=types, compute_kernels=["fused"]) for name in names}
    topology = Topology(world_size=world, compute_device="cpu", local_world_size=world)
    planner = EmbeddingShardingPlanner(topology=topology, constraints=constraints, batch_size=workload.batch // world)
    plan = planner.collective_plan(collection, [Sharder()], group)
    chosen = sorted({one.sharding_type for own in plan.plan.values() for one in own.values()})
    model = DistributedModelParallel(
        collection,
        device=torch.device("cpu"),
        plan=plan,
        sharders=[Sharder()],
        env=ShardingEnv.from_process_group(group),
        init_data_parallel=False,
    )

    size = workload.batch // world
    part = slice(rank * size, (rank + 1) * size)

    def mine(batch):
        values, lengths = [], []
        for ids, offsets in zip(batch.ids, batch.offsets, strict=True):
            values.append(ids[offsets[part.start] : offsets[part.stop]])
            lengths.append(np.diff(offsets[part.start : part.stop + 1]))
        return KeyedJaggedTensor(
            keys=[f"f_{name}" for name in names],
            values=torch.from_numpy(np.concatenate(values).astype(np.int64)),
            lengths=torch.from_numpy(np.concatenate(lengths).astype(np.int32)),
        )

    inputs = [mine(batch) for batch in batches(workload, NUM_BATCHES)]
    grads = torch.randn(size, workload.tables * workload.dim) * 1e-3

    def step(i: int) -> None:
        out = model(inputs[i % NUM_BATCHES])
        out = out.wait() if hasattr(out, "wait") else out
        out.values().backward(grads)

    for i in range(5):
        step(i)
    times = []
    for i in range(steps):
        dist.barrier()
        start = time.perf_counter()
        step(i)
        times.append(time.perf_counter() - start)
    if rank == 0:
        found = {"step": float(np.median(times)) * 1e3, "least": min(times) * 1e3, "chosen": chosen}
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
