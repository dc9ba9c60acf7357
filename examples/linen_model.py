"""The same idea in Flax Linen: one embedding layer, one dense layer, tables updated inside the jitted step.

python examples/linen_model.py [--steps 200]
"""

import argparse
import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

import sparrow as sp
from sparrow.data import Clicks

FIELDS, ROWS = 4, 100
RULE = sp.rules.Adam(learning_rate=0.02)
FEATURES = tuple(
    sp.FeatureSpec(
        name=f"field_{i}",
        table_spec=sp.TableSpec(name=f"field_{i}", vocabulary_size=ROWS, embedding_dim=8, optimizer=RULE),
    )
    for i in range(FIELDS)
)


class Head(nn.Module):
    """Scores the concatenated activations."""

    @nn.compact
    def __call__(self, acts: dict[str, jax.Array]) -> jax.Array:
        x = jnp.concatenate([acts[feature.name] for feature in FEATURES], axis=1)
        return nn.Dense(1)(nn.relu(nn.Dense(16)(x)))[:, 0]


embed, head, dense = sp.linen.Embed(FEATURES), Head(), optax.adam(1e-2)


@functools.partial(jax.jit, donate_argnums=0)
def train_step(train_state, batch, labels):
    tables, params, dense_state = train_state
    acts = embed.apply(tables, batch)

    def loss_fn(params, acts):
        return optax.sigmoid_binary_cross_entropy(head.apply(params, acts), labels).mean()

    loss, (grads, act_grads) = jax.value_and_grad(loss_fn, argnums=(0, 1))(params, acts)
    updates, dense_state = dense.update(grads, dense_state, params)
    _, tables = embed.apply(tables, batch, act_grads, method="update", mutable=["embeddings"])
    return (tables, optax.apply_updates(params, updates), dense_state), loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    data = Clicks(fields=FIELDS, rows=ROWS)

    def pack(ids):
        return embed.embedder.pack({feature.name: ids[:, i] for i, feature in enumerate(FEATURES)})

    first = pack(data.batch(0, 1024).ids)
    tables = embed.init(jax.random.key(0), first)
    params = head.init(jax.random.key(1), embed.apply(tables, first))
    state = (tables, params, dense.init(params))
    for step, batch in enumerate(data.batches(parser.parse_args().steps, 1024)):
        state, loss = train_step(state, pack(batch.ids), batch.labels)
        if step % 50 == 0:
            print(f"step {step}: loss {loss:.4f}")
    print(f"last loss {loss:.4f}")


if __name__ == "__main__":
    main()
