"""A custom rule: the equation for one row, and a small model whose tables it trains, compared with two shipped rules.

python examples/custom_rule.py [--steps 300]
"""

import argparse
import dataclasses

import jax
import jax.numpy as jnp
import optax

import sparrow as sp
from sparrow import models
from sparrow.data import ClickLog

FIELDS, ROWS, FACTORS, BATCH = 4, 200, 4, 1024
NAMES = [f"field_{i}" for i in range(FIELDS)]


@dataclasses.dataclass(frozen=True)
class RowwiseYogi(sp.Rule):
    """Yogi with one number per row: how much the velocity changes does not depend on how large it is.

    ::

        square    = mean(grad**2)
        velocity' = velocity - (1 - beta2) * sign(velocity - square) * square
        row      -= learning_rate * grad / (sqrt(velocity') + eps)

    Reference: Zaheer et al., Adaptive Methods for Nonconvex Optimization, NeurIPS 2018.
    """

    learning_rate: sp.rules.ScalarOrSchedule = 0.01
    beta2: float = 0.99
    eps: float = 1e-3
    initial_velocity: float = 1e-6

    slots = {"velocity": sp.rules.Slot(sp.rules.PER_ROW, init="initial_velocity")}

    def update(self, row, grad, slots, h):  # row, grad: (dim,); h: the numbers at this step
        square = jnp.mean(grad * grad)
        velocity = slots["velocity"] - (1.0 - h.beta2) * jnp.sign(slots["velocity"] - square) * square
        return row - h.learning_rate * grad / (jnp.sqrt(velocity) + h.eps), {"velocity": velocity}


def loss_fn(params, acts, labels):
    """Return the loss of a factorization machine: a row holds the id's weight first, and then its vector."""
    rows = jnp.stack([acts[name] for name in NAMES], axis=1)  # (batch, fields, 1 + factors)
    pairs = models.factorization_machine(rows[:, :, 1:]).sum(axis=1)
    logits = params["bias"] + rows[:, :, 0].sum(axis=1) + pairs
    return sp.losses.reduce(sp.losses.binary_cross_entropy(logits, labels)), logits


def train(rule: sp.Rule, data: ClickLog, steps: int) -> tuple[float, float]:
    """Return the AUC on fresh impressions, and the best possible one."""
    embedder = sp.Embedder(
        [
            sp.FeatureSpec(
                name=name,
                table_spec=sp.TableSpec(name=name, vocabulary_size=ROWS, embedding_dim=1 + FACTORS, optimizer=rule),
            )
            for name in NAMES
        ]
    )
    optimizer = sp.Optimizer(embedder, optax.adam(0.01))
    state = optimizer.init(embedder.init(jax.random.key(0)), {"bias": jnp.zeros(())})

    def pack(ids):
        return embedder.pack({name: ids[:, i] for i, name in enumerate(NAMES)})

    @jax.jit
    def train_step(state, batch, labels):
        return optimizer.step(state, loss_fn, batch, labels, has_aux=True)[0]

    for batch in data.batches(steps, BATCH):
        state = train_step(state, pack(batch.ids), batch.labels)

    held_out, metric = data.batch(10_000, 32_768), sp.metrics.ExactAUC()
    _, logits = loss_fn(state.params, embedder.lookup(state.embedding, pack(held_out.ids)), held_out.labels)
    scores = logits, held_out.probabilities
    return tuple(metric.compute(metric.update(metric.init(), score, held_out.labels)) for score in scores)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    data = ClickLog(fields=FIELDS, ids=ROWS)
    rate = sp.schedules.linear(0.2, 0.01, steps=steps)
    rules = [RowwiseYogi(rate), sp.rules.RowwiseAdagrad(rate), sp.rules.Adagrad(rate)]
    for rule in rules:
        auc, best = train(rule, data, steps)
        print(f"{rule.name:<15} AUC {auc:.4f}; the best possible is {best:.4f}")


if __name__ == "__main__":
    main()
