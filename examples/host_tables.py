"""Tables in host memory in a plain JAX loop: the device holds a cache of their rows, planned ahead from the batches.

python examples/host_tables.py [--steps 400] [--rows 20000] [--cache 0.2]

Results are those of tables on the device, bit for bit; `--cache 0` puts them there, to compare.
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import optax

import sparrow as sp
from sparrow.data import Clicks

FIELDS, DIM, BATCH = 8, 8, 1024
NAMES = [f"field_{i}" for i in range(FIELDS)]


def make_embedder(rows: int, cache: float) -> sp.Embedder:
    memory = sp.HostMemory(cache=cache) if cache else None
    tables = [
        sp.TableSpec(
            name=name,
            vocabulary_size=rows,
            embedding_dim=DIM,
            optimizer=sp.rules.RowwiseAdagrad(0.15, initial_accumulator=0.1),
            memory=memory,
        )
        for name in NAMES
    ]
    return sp.Embedder([sp.FeatureSpec(name=table.name, table_spec=table) for table in tables])


def logits_of(params, acts):
    """Return the logits of a factorization machine: pairs of rows, and a linear part."""
    rows = jnp.stack([acts[name] for name in NAMES])  # (fields, batch, dim)
    pairs = jnp.square(rows.sum(0)) - jnp.square(rows).sum(0)
    return (pairs * params["pairs"]).sum(1) + (rows.sum(0) * params["linear"]).sum(1) + params["bias"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--cache", type=float, default=0.2)
    arguments = parser.parse_args()

    embedder = make_embedder(arguments.rows, arguments.cache)
    optimizer = sp.Optimizer(embedder, optax.adam(1e-2))
    params = {"pairs": jnp.ones(DIM), "linear": jnp.ones(DIM), "bias": jnp.zeros(())}

    # 1. The session owns the rows in host memory, and brings them to the device and back.
    session = embedder.session(ahead=2)
    state = optimizer.init(session.init(jax.random.key(0)), params)

    def loss_fn(params, acts, labels):
        return sp.losses.reduce(sp.losses.binary_cross_entropy(logits_of(params, acts), labels))

    @functools.partial(jax.jit, donate_argnums=0)
    def train_step(state, batch, labels):
        state, info = optimizer.step(state, loss_fn, batch, labels)
        return state, info.loss

    @jax.jit
    def predict(state, batch):
        return jax.nn.sigmoid(logits_of(state.params, embedder.lookup(state.embedding, batch)))

    def inputs(ids):
        return {name: ids[:, i] for i, name in enumerate(NAMES)}

    data = Clicks(fields=FIELDS, rows=arguments.rows)
    began = time.perf_counter()
    batches = ((inputs(batch.ids), batch.labels) for batch in data.batches(arguments.steps, BATCH))
    # 2. A stream of steps, prepared ahead: each with a packed batch whose rows are on the device after `advance`.
    for number, step in enumerate(session.stream(batches)):
        state = session.advance(state, step)
        state, loss = train_step(state, step.batch, step.other)
        if number % 100 == 0:
            print(f"step {number}: loss {loss:.4f}")
    seconds = time.perf_counter() - began

    # 3. To evaluate, rows are read from host memory: the caches stay as they are.
    metric = sp.metrics.ExactAUC()
    scores = metric.init()
    for batch in data.batches(8, BATCH, start=10_000):
        reading, packed = session.reading(state, inputs(batch.ids))
        scores = metric.update(scores, predict(reading, packed), batch.labels)

    # 4. Complete tables and slots, such as for a checkpoint; `session.replace` takes them back.
    largest = max(float(abs(session.table(state, name)).max()) for name in NAMES)
    total = session.host.total
    print(f"{arguments.steps * BATCH / seconds:,.0f} examples a second; the largest value is {largest:.4f}")
    if arguments.cache:
        steps = arguments.steps
        print(f"{total.hits:.1%} of lookups hit; {total.bytes_in / steps:,.0f} bytes a step in", end=", ")
        print(f"{total.bytes_out / steps:,.0f} out; waited {total.waited:.2f} s")
    print(f"AUC {metric.compute(scores):.4f}")
    session.close()


if __name__ == "__main__":
    main()
