"""All models over features of every kind, with parameters as training leaves them: nowhere 0, nowhere alike."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
from flax import nnx

from sparrow import config as configs
from sparrow import models, runs
from sparrow.embedding import Embedder

WORDS = ("red", "green", "blue")
IDS = ["user", "item", "colors", "watched", "seen", "place", "age"]
ALL = [*IDS, "prices"]


def rows(count, seed=0):
    """Rows with missing values, empty and long lists, unknown words."""
    rng = np.random.default_rng(seed)

    def lists(make, longest):
        return [None if i % 11 == 0 else [make() for _ in range(rng.integers(0, longest))] for i in range(count)]

    words = [*WORDS, "pink"]
    watched = lists(lambda: int(rng.integers(0, 60)), 6)
    return pa.table(
        {
            "user": pa.array(rng.integers(0, 50, count), mask=rng.random(count) < 0.1),
            "item": pa.array([f"item {i}" for i in rng.integers(0, 500, count)], pa.string()),
            "colors": pa.array(["|".join(words[a : a + b]) for a, b in rng.integers(0, 4, (count, 2))], pa.string()),
            "watched": pa.array(watched, pa.list_(pa.int64())),
            "shares": pa.array(
                [None if w is None else rng.random(len(w)).tolist() for w in watched], pa.list_(pa.float64())
            ),
            "seen": pa.array(lists(lambda: int(rng.integers(0, 60)), 9), pa.list_(pa.int64())),
            "age": pa.array(rng.integers(10, 90, count), mask=rng.random(count) < 0.1),
            "prices": pa.array(rng.lognormal(size=(count, 2)).tolist(), pa.list_(pa.float64())),
        }
    )


def features(words):
    """``words`` is the path of a vocabulary's file."""
    return [
        {"kind": "id", "name": "user", "num_buckets": 50, "embedding_dim": 4},
        {"kind": "id", "name": "item", "hash_bucket_size": 97, "embedding_dim": 4},
        {"kind": "id", "name": "colors", "vocabulary": str(words), "separator": "|", "embedding_dim": 4},
        {
            "kind": "id",
            "name": "watched",
            "num_buckets": 60,
            "embedding_dim": 4,
            "weight_column": "shares",
            "pooling": "mean",
            "table": "films",
        },
        {
            "kind": "sequence",
            "name": "seen",
            "num_buckets": 60,
            "embedding_dim": 4,
            "max_length": 5,
            "pooling": "mean",
            "table": "films",
        },
        {"kind": "combo", "name": "place", "cross": ["user", "item"], "hash_bucket_size": 53, "embedding_dim": 4},
        {"kind": "raw", "name": "age", "boundaries": [20, 40, 60], "embedding_dim": 4},
        {"kind": "raw", "name": "prices", "dim": 2, "log": True, "mean": 0.5, "std": 2.0},
    ]


MLP = {"hidden_units": [8]}
CLICK = {"click": {"label": "click", "losses": ["binary_cross_entropy"]}}
CLASSES = {"kind": {"label": "click", "losses": ["softmax_cross_entropy"]}}
MATCH = {"match": {"label": "click", "losses": ["in_batch_softmax"]}}
USERS, ITEMS = ["user", "watched", "seen", "age"], ["item", "colors", "place", "prices"]


@models.register_model("test_own")
class Own(nnx.Module):
    """A user's own model, whose code only the exporting process has."""

    def __init__(self, inputs: models.Inputs, *, power: float = 2.0, rngs: nnx.Rngs):
        self.group, self.power = inputs.group("all"), power
        self.linear = nnx.Linear(self.group.dim, 1, rngs=rngs)

    def __call__(self, acts, numbers):
        x = self.group.concat(acts, numbers)
        return {"logits": self.linear(jnp.abs(x) ** self.power)[:, 0]}


MODELS = {
    "deepfm": ({"name": "deepfm", "deep": MLP}, {"wide": ["user", "seen"], "fm": IDS, "deep": ALL}, CLICK),
    "dlrm": (
        {"name": "dlrm", "dense_mlp": {"hidden_units": [4]}, "arch_with_sparse": True, "final": MLP, "num_classes": 3},
        {"sparse": IDS, "dense": ["prices"]},
        CLASSES,
    ),
    "wide_and_deep": (
        {"name": "wide_and_deep", "deep": {**MLP, "use_bn": True, "dropout_ratio": 0.5}},
        {"wide": ["item", "colors"], "deep": ALL},
        CLICK,
    ),
    "multi_tower": (
        {"name": "multi_tower", "towers": [{"input": "a", "mlp": MLP}, {"input": "b", "mlp": MLP}]},
        {"a": USERS, "b": ITEMS},
        {"value": {"label": "click", "losses": ["l2"]}},
    ),
    "dssm": (
        {
            "name": "dssm",
            "user_tower": {"input": "a", "mlp": MLP},
            "item_tower": {"input": "b", "mlp": MLP},
            "output_dim": 6,
            "similarity": "cosine",
        },
        {"a": USERS, "b": ITEMS},
        MATCH,
    ),
    "mmoe": (
        {
            "name": "mmoe",
            "expert_mlp": MLP,
            "num_experts": 2,
            "task_towers": [{"task": "click", "mlp": MLP}, {"task": "buy", "mlp": MLP}],
        },
        {"all": ALL},
        CLICK | {"buy": {"label": "click", "losses": [{"name": "jrc", "session_name": "user"}]}},
    ),
    "test_own": ({"name": "test_own"}, {"all": ALL}, CLICK),
}
MODELS["mmoe"][0]["task_towers"][1]["num_classes"] = 2


def config(model, words, *overrides):
    architecture, groups, tasks = MODELS[model]
    data = {
        "train": {
            "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.1},
            "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.01},
            "batch_size": 1000,
            "steps": 1,
        },
        "tasks": tasks,
        "data": {"train": {"name": "parquet", "path": "none"}, "features": features(words)},
        "model": {"architecture": architecture, "groups": groups},
    }
    return configs.from_mapping(data, overrides=overrides)


def program_and_state(config, dtype="float32"):
    """A program, with tables of ``dtype``, and a state of random numbers."""
    program = runs.Program.of(config)
    if dtype != "float32":
        tables = {
            spec.table_spec.name: dataclasses.replace(spec.table_spec, dtype=dtype) for spec in program.assembly.specs
        }
        specs = tuple(
            dataclasses.replace(spec, table_spec=tables[spec.table_spec.name]) for spec in program.assembly.specs
        )
        embedder = Embedder(specs)
        program = dataclasses.replace(
            program,
            assembly=dataclasses.replace(program.assembly, specs=specs),
            embedder=embedder,
            optimizer=dataclasses.replace(program.optimizer, embedder=embedder),
        )
    rng = np.random.default_rng(0)

    def random(leaf):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.zeros(leaf.shape, leaf.dtype)
        return jnp.asarray(rng.normal(0.0, 0.3, leaf.shape), leaf.dtype)

    shapes = jax.eval_shape(program.init)
    optimizer, metrics = jax.tree.map(random, (shapes.optimizer, shapes.metrics))
    # Means and variances; keys of dropout stay as they are.
    rest = jax.tree.map(lambda leaf: abs(random(leaf)) if leaf.dtype == jnp.float32 else leaf, program.fresh[1])
    return program, runs.TrainState(optimizer, rest, metrics)


def served(code, *arguments):
    """Runs code in a process of its own, which has seen none of this."""
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
