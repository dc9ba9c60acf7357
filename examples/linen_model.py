"""The same idea in Flax Linen: lookup inside the model, one value_and_grad, one optimizer step for tables and the rest.

python examples/linen_model.py [--steps 200]
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import sparrow as sp
from sparrow.data import ClickLog

FIELDS, ROWS = 4, 100
RULE = sp.rules.Adam(learning_rate=0.02)
FEATURES = tuple(
    sp.FeatureSpec(
        name=f"field_{i}",
        table_spec=sp.TableSpec(name=f"field_{i}", vocabulary_size=ROWS, embedding_dim=8, optimizer=RULE),
    )
    for i in range(FIELDS)
)


class ClickModel(nn.Module):
    """Looks the fields up and scores them."""

    @nn.compact
    def __call__(self, batch: sp.PackedBatch) -> jax.Array:
        acts = sp.linen.Embed(FEATURES, name="embed")(batch)
        x = jnp.concatenate([acts[feature.name] for feature in FEATURES], axis=1)
        return nn.Dense(1)(nn.relu(nn.Dense(16)(x)))[:, 0]


model = ClickModel()


@functools.partial(jax.jit, donate_argnums=0)  # donated: the tables are updated in place
def train_step(state: sp.linen.TrainState, batch: sp.PackedBatch, labels: jax.Array):
    def loss_fn(trainable):
        logits, seen = model.apply({**state.variables, **trainable}, batch, mutable=["lookups"])
        return optax.sigmoid_binary_cross_entropy(logits, labels).mean(), seen["lookups"]

    (loss, lookups), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.trainable(batch))
    return state.apply_gradients(grads=grads, lookups=lookups), loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    data = ClickLog(fields=FIELDS, ids=ROWS)
    embedder = sp.linen.Embed(FEATURES).embedder

    def pack(ids):
        return embedder.pack({feature.name: ids[:, i] for i, feature in enumerate(FEATURES)})

    variables = model.init(jax.random.key(0), pack(data.batch(0, 1024).ids))
    state = sp.linen.TrainState.create(model=model, variables=variables, tx=optax.adam(1e-2))
    for step, batch in enumerate(data.batches(parser.parse_args().steps, 1024)):
        state, loss = train_step(state, pack(batch.ids), batch.labels)
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.4f}")

    predict, metric = jax.jit(model.apply), sp.metrics.ExactAUC()
    ranked = metric.init()
    for batch in data.batches(8, 1024, start=10_000):
        ranked = metric.update(ranked, jax.nn.sigmoid(predict(state.variables, pack(batch.ids))), batch.labels)
    print(f"last loss {loss:.4f}, AUC {metric.compute(ranked):.4f} on fresh impressions")


if __name__ == "__main__":
    main()
