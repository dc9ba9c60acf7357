"""Quad and skew on a mesh of four devices and on one; prints how far apart they end. Run by test_scanned.py."""

import json

import jax
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from sparrow import dense

STEPS = 5
SPECS = {"stack": PartitionSpec(None, "model"), "vector": PartitionSpec()}


def tree(seed):
    random = np.random.RandomState(seed)
    return {
        "stack": np.asarray(random.normal(size=(5, 8, 8)), np.float32),
        "vector": np.asarray(random.normal(size=7), np.float32),
    }


def run(name, put, **hyper):
    tx, _ = dense.build(name, 0.1, scanned_layers={"stack": True, "vector": False}, **hyper)
    params = put(tree(0))
    state = jax.jit(tx.init)(params)

    @jax.jit
    def step(params, state, grads):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for seed in range(1, 1 + STEPS):
        params, state = step(params, state, put(tree(seed)))
    return params, state["optimizer"][0]


def main():
    found = {}
    for name in ("quad", "skew"):
        expected, _ = run(name, lambda value: value)
        for kind in (AxisType.Auto, AxisType.Explicit):
            mesh = jax.make_mesh((2, 2), ("stage", "model"), (kind, kind))
            on_mesh = {leaf: NamedSharding(mesh, spec) for leaf, spec in SPECS.items()}
            with jax.set_mesh(mesh):
                params, state = run(
                    name,
                    lambda value, on_mesh=on_mesh: jax.device_put(value, on_mesh),
                    pipeline_axis_name="stage",
                    pipeline_axis_size=2,
                    params_partition_specs=SPECS,
                )
            found[f"{name} {kind.name}"] = {
                "params": max(float(np.abs(params[leaf] - expected[leaf]).max()) for leaf in expected),
                "moved": max(float(np.abs(params[leaf] - tree(0)[leaf]).max()) for leaf in expected),
                "factors": [axis for axis in state.left["stack"].sharding.spec if axis],
                "shard": list(state.left["stack"].addressable_shards[0].data.shape),
                "momentum": list(state.mu["stack"].addressable_shards[0].data.shape),
            }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
