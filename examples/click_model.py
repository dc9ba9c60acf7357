"""A click model with fused tables, in Flax NNX: trains on synthetic clicks and compares with the best possible AUC.

python examples/click_model.py [--steps 800]
"""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import sparrow as sp
from sparrow.data import ClickLog

FIELDS, ROWS, DIM, BATCH = 8, 300, 8, 2048
NAMES = [f"field_{i}" for i in range(FIELDS)]


class ClickModel(nnx.Module):
    """A factorization machine and a small network over the embeddings of all fields."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        rule = sp.rules.RowwiseAdagrad(learning_rate=optax.linear_schedule(0.15, 0.02, 800))
        weight = sp.rules.Adagrad(learning_rate=optax.linear_schedule(0.15, 0.02, 800))
        features = []
        for name in NAMES:
            table = sp.TableSpec(name=name, vocabulary_size=ROWS, embedding_dim=DIM, optimizer=rule)
            wide = sp.TableSpec(name=f"{name}_weight", vocabulary_size=ROWS, embedding_dim=1, optimizer=weight)
            features += [
                sp.FeatureSpec(name=name, table_spec=table),
                sp.FeatureSpec(name=f"{name}_weight", table_spec=wide),
            ]
        self.embed = sp.nnx.Embed(features, rngs=rngs)
        self.hidden = nnx.Linear(FIELDS * DIM, 32, rngs=rngs)
        self.out = nnx.Linear(32, 1, rngs=rngs)

    def __call__(self, batch: sp.PackedBatch) -> jax.Array:
        acts = self.embed(batch)
        vectors = jnp.stack([acts[name] for name in NAMES], axis=1)  # (batch, fields, dim)
        pairs = 0.5 * (jnp.square(vectors.sum(axis=1)) - jnp.square(vectors).sum(axis=1)).sum(axis=1)
        weights = sum(acts[f"{name}_weight"][:, 0] for name in NAMES)
        deep = self.out(nnx.relu(self.hidden(vectors.reshape(len(vectors), -1))))[:, 0]
        return weights + pairs + deep

    def pack(self, ids) -> sp.PackedBatch:
        columns = {name: ids[:, i] for i, name in enumerate(NAMES)}
        return self.embed.pack(columns | {f"{name}_weight": column for name, column in columns.items()})


def loss_fn(model: ClickModel, batch: sp.PackedBatch, labels: jax.Array) -> jax.Array:
    return optax.sigmoid_binary_cross_entropy(model(batch), labels).mean()


@functools.partial(nnx.jit, donate_argnums=(0, 1))  # donated: the tables are updated in place
def train_step(model: ClickModel, optimizer: sp.nnx.Optimizer, batch: sp.PackedBatch, labels: jax.Array) -> jax.Array:
    loss, grads = sp.nnx.value_and_grad(loss_fn)(model, batch, labels)
    optimizer.update(model, grads)
    return loss


def evaluate(model: ClickModel, data: ClickLog, batches: int) -> tuple[float, float]:
    """Return the model's AUC on fresh impressions, and the AUC of the true probabilities: the best possible."""
    predict = nnx.jit(lambda model, batch: model(batch))
    metric = sp.metrics.ExactAUC()
    ours, best = metric.init(), metric.init()
    for batch in data.batches(batches, BATCH, start=10_000):
        logits = predict(model, model.pack(batch.ids))
        ours = metric.update(ours, jax.nn.sigmoid(logits), batch.labels)
        best = metric.update(best, batch.probabilities, batch.labels)
    return metric.compute(ours), metric.compute(best)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=800)
    steps = parser.parse_args().steps

    data = ClickLog(fields=FIELDS, ids=ROWS)
    model = ClickModel(nnx.Rngs(0))
    optimizer = sp.nnx.Optimizer(model, optax.adam(2e-3))
    print(f"training on {steps} batches of {BATCH} synthetic clicks; {model.embed.embedder}")
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]:.4f}"), TimeRemainingColumn())
    began = time.perf_counter()
    with Progress(TextColumn("training"), *columns) as progress:
        task = progress.add_task("", total=steps, loss=float("nan"))
        for step, batch in enumerate(data.batches(steps, BATCH)):
            loss = train_step(model, optimizer, model.pack(batch.ids), batch.labels)
            if step % 20 == 0 or step == steps - 1:
                progress.update(task, completed=step + 1, loss=float(loss))
    seconds = time.perf_counter() - began
    auc, best = evaluate(model, data, 32)
    print(f"{steps * BATCH / seconds:,.0f} examples per second")
    print(f"AUC {auc:.4f}; the best possible is {best:.4f} (difference {best - auc:.4f})")


if __name__ == "__main__":
    main()
