"""A training loop in plain JAX, without a trainer: tables, a DeepFM model and one optimizer step for both.

python examples/plain_loop.py [--steps 600] [--precision bfloat16]
"""

import argparse
import functools
import time

import jax
import optax
from flax import nnx

import sparrow as sp
from sparrow import models
from sparrow.data import ClickLog

FIELDS, ROWS, DIM, BATCH = 8, 300, 8, 2048
NAMES = [f"field_{i}" for i in range(FIELDS)]
WIDE = [f"{name}_wide" for name in NAMES]

# Tables. Each field has two: a vector for the network and the factorization machine, a number for the linear part.
embedder = sp.Embedder(
    [
        sp.FeatureSpec(
            name=name,
            table_spec=sp.TableSpec(
                name=name,
                vocabulary_size=ROWS,
                embedding_dim=1 if name in WIDE else DIM,
                optimizer=sp.rules.Adagrad(sp.schedules.linear(0.15, 0.02, steps=600)),
            ),
        )
        for name in [*NAMES, *WIDE]
    ]
)

inputs = models.Inputs(
    acts={feature.name: feature.table_spec.embedding_dim for feature in embedder.features},
    groups={"wide": WIDE, "deep": NAMES},
)


def pack(ids) -> sp.PackedBatch:
    columns = [ids[:, i] for i in range(FIELDS)]
    return embedder.pack(dict(zip([*NAMES, *WIDE], columns + columns, strict=True)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--precision", default="float32")
    arguments = parser.parse_args()

    # The model, dense layers over the activations, as pure functions; `rest` holds the keys of dropout.
    model = models.DeepFM(inputs, deep=models.MLP((32,), dropout_ratio=0.1), rngs=nnx.Rngs(0))
    apply, params, rest = models.functional(model)

    rate = sp.schedules.linear(2e-3, 2e-4, steps=arguments.steps)
    optimizer = sp.Optimizer(embedder, optax.adam(rate), clip_global_norm=10.0, precision=arguments.precision)
    state = optimizer.init(embedder.init(jax.random.key(0)), params)

    def loss_fn(params, acts, rest, labels):
        outputs, rest = apply.train(params, rest, acts, {})
        return sp.losses.reduce(sp.losses.binary_cross_entropy(outputs["logits"], labels)), rest

    @functools.partial(jax.jit, donate_argnums=(0, 1))  # donated: the tables are updated in place
    def train_step(state, rest, batch, labels):
        state, info = optimizer.step(state, loss_fn, batch, rest, labels, has_aux=True)
        return state, info.aux, info.loss

    @jax.jit
    def predict(state, rest, batch):
        acts = embedder.lookup(state.embedding, batch)
        return jax.nn.sigmoid(apply.predict(state.params, rest, acts, {})["logits"])

    data = ClickLog(fields=FIELDS, ids=ROWS)
    began = time.perf_counter()
    for step, batch in enumerate(data.batches(arguments.steps, BATCH)):
        state, rest, loss = train_step(state, rest, pack(batch.ids), batch.labels)
        if step % 100 == 0:
            print(f"step {step}: loss {loss:.4f}")
    seconds = time.perf_counter() - began

    metric = sp.metrics.ExactAUC()
    ours, best = metric.init(), metric.init()
    for batch in data.batches(32, BATCH, start=10_000):
        ours = metric.update(ours, predict(state, rest, pack(batch.ids)), batch.labels)
        best = metric.update(best, batch.probabilities, batch.labels)
    print(f"{arguments.steps * BATCH / seconds:,.0f} examples per second")
    print(f"AUC {metric.compute(ours):.4f}; the best possible is {metric.compute(best):.4f}")


if __name__ == "__main__":
    main()
