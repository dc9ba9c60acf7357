"""One of each part that a user may add from outside the package: rule, schedule, loss, metric, feature, source, model.

sparrow train examples/own_parts.yaml --import examples/own_parts.py --model-dir runs/own

The names that are registered here are the names that own_parts.yaml uses.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from flax import nnx

import sparrow as sp
from sparrow import data, losses, metrics, models, rules, schedules


@rules.register_rule("sign_adagrad")
@dataclasses.dataclass(frozen=True)
class SignAdagrad(sp.Rule):
    """Sign steps that shrink with the mean absolute gradient of the row so far."""

    learning_rate: sp.rules.ScalarOrSchedule = 0.01
    eps: float = 1e-8

    slots = {"accumulator": sp.rules.Slot(sp.rules.PER_ROW)}

    def update(self, row, grad, slots, h):
        accumulator = slots["accumulator"] + jnp.mean(jnp.abs(grad))
        return row - h.learning_rate * jnp.sign(grad) / (jnp.sqrt(accumulator) + h.eps), {"accumulator": accumulator}


@schedules.register_schedule("inverse_root")
@dataclasses.dataclass(frozen=True)
class InverseRoot(schedules.Schedule):
    """``lr / sqrt(1 + step / half)``."""

    half: int = 100

    def rate(self, count):
        return self.lr / jnp.sqrt(1.0 + count / self.half)


@losses.register_loss("poisson")
@dataclasses.dataclass(frozen=True)
class Poisson(losses.Loss):
    """``exp(output) - label * output``: the output is the logarithm of the expected count."""

    label_kind = "real"
    meaning = "expected count"

    def __call__(self, outputs, labels):
        return jnp.exp(outputs) - labels * outputs

    def prediction(self, output):
        return jnp.exp(output)


@metrics.register_metric("mean_prediction")
@dataclasses.dataclass(frozen=True)
class MeanPrediction(metrics.AverageMetric):
    """The mean of the predictions."""

    def values(self, batch):
        return batch.predictions


@data.register_feature("parity")
@dataclasses.dataclass(frozen=True)
class ParityFeature(data.SparseFeature):
    """Row 0 for even numbers, row 1 for odd ones."""

    name: str
    embedding_dim: int
    table: str | None = None

    part = "ids"
    num_rows = 2
    combiner = None

    @property
    def columns(self):
        return (self.name,)

    def refuse(self, column, kind):
        return None if pa.types.is_integer(kind) else f"feature '{self.name}' needs integers, the column holds {kind}"

    def convert(self, columns, problems):
        return (columns.column(self.name).to_numpy(zero_copy_only=False) % 2).astype(np.int32)


@data.register_source("visits")
@dataclasses.dataclass(frozen=True)
class Visits(data.Source):
    """Generated rows: a shop, a day, and a count of visits that depends on both."""

    rows: int = 4096
    seed: int = 0

    def _table(self) -> pa.Table:
        random = np.random.default_rng(self.seed)
        shop, day = random.integers(0, 20, self.rows), random.integers(0, 365, self.rows)
        visits = random.poisson(0.5 + 0.2 * shop + 2.0 * (day % 2))
        return pa.table({"shop": shop, "day": day, "visits": visits.astype(np.float32)})

    def open(self, columns: Sequence[str]) -> Any:
        return data.Tables(self._table(), chunk_rows=1024).open(columns)

    def column_names(self):
        return ["shop", "day", "visits"]


@models.register_model("additive")
class Additive(nnx.Module):
    """One number per feature, summed."""

    def __init__(self, inputs: models.Inputs, *, scale: float = 1.0, rngs: nnx.Rngs):
        self.group, self.scale = inputs.group("all"), scale
        self.linear = nnx.Linear(self.group.dim, 1, rngs=rngs)

    def __call__(self, acts, numbers):
        return {"logits": self.scale * self.linear(self.group.concat(acts, numbers))[:, 0]}
