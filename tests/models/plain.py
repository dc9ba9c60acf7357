"""Small parts of models in float64 NumPy, and `Case`: a tiny model with a second statement of its equation."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from sparrow import models

BATCH, DIM = 5, 3


def mlp(params, x):
    for index in sorted(params["layers"]):
        linear = params["layers"][index]["linear"]
        x = np.maximum(x @ linear["kernel"] + linear["bias"], 0)
    return x


def linear(params, x):
    return x @ params["kernel"] + params["bias"]


def logits(params, x):
    y = linear(params["linear"], mlp(params["mlp"], x) if "mlp" in params else x)
    return y[:, 0] if y.shape[1] == 1 else y


def concat(batch, *names):
    return np.concatenate([batch[name] for name in names], axis=1)


def pairs(vectors):
    return [(a, b) for i, a in enumerate(vectors) for b in vectors[i + 1 :]]


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


def layer_norm(params, x):
    centered = x - x.mean(axis=-1, keepdims=True)
    return centered / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * params["scale"] + params["bias"]


def unit(x):
    length = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return x / np.where(length > 0, length, 1)


def mixed(gate, experts):
    return (softmax(gate)[:, :, None] * np.stack(experts, axis=1)).sum(axis=1)


def history(*sequences):
    """The elements that are there, of each example: (length, dim)."""
    values = np.concatenate([sequence.values for sequence in sequences], axis=2)
    return [row[: int(length)] for row, length in zip(values, sequences[0].lengths, strict=True)]


def each(params):
    """The members of an nnx.List, in order."""
    return [params[index] for index in sorted(params)]


class Tape:
    """What `stop` saw, for a second call with other numbers in which the stopped ones stay as they were."""

    values: list = []
    replaying = False

    @classmethod
    @contextlib.contextmanager
    def replay(cls):
        seen, cls.values, cls.replaying = cls.values, list(cls.values), True
        try:
            yield
        finally:
            cls.values, cls.replaying = seen, False


def stop(x):
    """``jax.lax.stop_gradient`` for slopes by differences."""
    if Tape.replaying:
        return Tape.values.pop(0)
    Tape.values.append(x)
    return x


# ---- the cases


LENGTHS = np.array([0, 1, 3, 4, 2])
"""An empty history, one of one element, and one that fills the padded length."""
SEQUENCES = {"clicks": DIM, "kinds": 2, "when": 1}
NUMBERS = ("age", "prices", "domain", "now")
DIMS = {
    "domain": 1,
    "now": 1,
    "age": 1,
    "prices": 2,
    "user": DIM,
    "item": DIM,
    "shop": DIM,
    "user_wide": 1,
    "item_wide": 2,
}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    record: dict[str, Any]
    groups: dict[str, list[str]]
    reference: Callable[..., Any]
    dims: dict[str, int] = dataclasses.field(default_factory=dict)

    def __str__(self):
        return self.name

    @property
    def features(self):
        return sorted({name for names in self.groups.values() for name in names})

    def inputs(self):
        dims = {**DIMS, **SEQUENCES, **self.dims}
        used = {name: dims[name] for name in self.features}
        numbers = {name: dim for name, dim in used.items() if name in NUMBERS}
        sequences = {name: dim for name, dim in used.items() if name in SEQUENCES}
        acts = {name: dim for name, dim in used.items() if name not in numbers and name not in sequences}
        return models.Inputs(acts, numbers, self.groups, sequences)

    def functional(self):
        """Pure functions, and random parameters: biases that are all 0 would hide mistakes."""
        record = models.registry.from_dict(self.record)
        model = nnx.eval_shape(lambda: record.build(self.inputs(), rngs=nnx.Rngs(0)))
        apply, shapes, rest = models.functional(model)
        assert not jax.tree.leaves(rest)
        rng = np.random.default_rng(1)
        return apply, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)

    def batch(self, seed=0):
        rng, inputs = np.random.default_rng(seed), self.inputs()
        acts = {n: rng.normal(size=(BATCH, d)).astype(np.float32) for n, d in inputs.acts.items()}
        numbers = {n: rng.normal(size=(BATCH, d)).astype(np.float32) for n, d in inputs.numbers.items()}
        for name, dim in inputs.sequences.items():
            values = rng.normal(size=(BATCH, LENGTHS.max(), dim)).astype(np.float32)
            if name == "when":  # minutes, ascending
                values = np.cumsum(60 * np.abs(values), axis=1, dtype=np.float32)
            values[np.arange(LENGTHS.max()) >= LENGTHS[:, None]] = 1e3  # never to be read
            (numbers if name == "when" else acts)[name] = models.Sequence(values, LENGTHS.astype(np.int32))
        if "now" in numbers:
            numbers["now"] = 300 + 60 * np.abs(numbers["now"])
        if "domain" in numbers:
            numbers["domain"] = np.arange(BATCH, dtype=np.float32)[:, None] % 3
        return acts, numbers


def units(*hidden):
    return {"hidden_units": list(hidden)}
