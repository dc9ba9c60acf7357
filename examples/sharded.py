"""Tables spread over the devices of a mesh. Without accelerators, over 8 virtual devices of the CPU.

python examples/sharded.py [--steps 200] [--devices 8] [--exchange auto]
"""

import argparse
import functools
import os
import time

FIELDS, ROWS, DIM, BATCH = 8, 3000, 16, 2048


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--exchange", default="auto")
    return parser.parse_args()


def main(options: argparse.Namespace) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax

    import sparrow as sp
    from sparrow.data import ClickLog

    mesh = jax.make_mesh((options.devices,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    names = [f"field_{i}" for i in range(FIELDS)]
    tables = [
        sp.TableSpec(name=name, vocabulary_size=ROWS, embedding_dim=DIM, optimizer=sp.rules.Adagrad(0.1))
        for name in names
    ]
    features = [sp.FeatureSpec(name=table.name, table_spec=table) for table in tables]
    embedder = sp.Embedder(features, mesh=mesh, axis="data", exchange=options.exchange)

    def logits(params, acts):
        x = jnp.concatenate([acts[name] for name in names], axis=1)
        return jax.nn.relu(x @ params["hidden"]) @ params["out"]

    def loss_fn(params, acts, labels):
        return sp.losses.reduce(sp.losses.binary_cross_entropy(logits(params, acts), labels))

    # Dense parameters are on every device; tables, slots and batches are split. JAX sums the dense gradients.
    rng = np.random.default_rng(0)
    params = {"hidden": rng.normal(size=(FIELDS * DIM, 32)).astype(np.float32) / 8, "out": np.zeros(32, np.float32)}
    optimizer = sp.Optimizer(embedder, optax.adam(2e-3), clip_global_norm=10.0)
    state = optimizer.init(embedder.init(jax.random.key(0)), params)

    @functools.partial(jax.jit, donate_argnums=0)  # donated: every device updates its rows in place
    def train_step(state, batch, labels):
        return optimizer.step(state, loss_fn, batch, labels)

    @jax.jit
    def predict(state, batch):
        return jax.nn.sigmoid(logits(state.params, embedder.lookup(state.embedding, batch)))

    data, sizes = ClickLog(fields=FIELDS, ids=ROWS), sp.Sizes()

    def pack(ids):
        return embedder.pack({name: ids[:, i] for i, name in enumerate(names)}, sizes=sizes)

    began = time.perf_counter()
    for step, batch in enumerate(data.batches(options.steps, BATCH)):
        labels = jax.device_put(batch.labels, embedder.shards.split_sharding)
        state, info = train_step(state, pack(batch.ids), labels)
        if step % 50 == 0:
            print(f"step {step}: loss {info.loss:.4f}")
    seconds = time.perf_counter() - began

    metric = sp.metrics.ExactAUC()
    found = metric.init()
    for batch in data.batches(16, BATCH, start=10_000):
        found = metric.update(found, np.asarray(predict(state, pack(batch.ids))), batch.labels)
    (stack,) = embedder.stacks
    held = [shard.data.nbytes for shard in state.embedding.tables[stack.name].addressable_shards]
    print(f"{len(held)} devices, {held[0] / 1e6:.2f} MB of {sum(held) / 1e6:.2f} MB of tables on each")
    print(f"exchange: {embedder.sharded.exchanges[stack.name]}; sizes grew {sizes.learned.growths} times")
    print(f"{options.steps * BATCH / seconds:,.0f} examples per second")
    print(f"AUC {metric.compute(found):.4f}")


if __name__ == "__main__":
    given = arguments()  # the number of devices must be known before JAX starts
    flag = f"--xla_force_host_platform_device_count={given.devices}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flag}"
    main(given)
