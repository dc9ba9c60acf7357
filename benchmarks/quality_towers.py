"""Two towers beside implicit's ALS, on generated choices of MovieLens-1M's size: Recall@K among all items.

    python benchmarks/quality_towers.py                            # ours, three ways
    python benchmarks/quality_towers.py --als VENV/bin/python      # and ALS, in an environment that has implicit

The data is generated, not MovieLens: 6,040 users, 3,706 items and about a million choices. Each user draws his items
without replacement, by the popularity of an item, the product of a taste and a character, and chance. The protocol:

- 20 % of the choices at random are held out by ``data.split``; both models train on the same other 80 %.
- For each user, all items that he has not chosen in training are ranked; Recall@K and NDCG@K are means over users.
- Ours: one table of users and one of items, dim 64, trained with Adam and the defaults of the losses. ALS: 64 factors,
  15 iterations, the defaults of implicit for the rest. Nothing was tuned on the rows held out.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import config as configs
from sparrow import metrics, runs

USERS, ITEMS, CHOICES, DIM = 6040, 3706, 1_000_209, 64
TASTE = 12
TOP = (10, 20)
ENV = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as implicit asks for
ALS = """
import sys, time, numpy as np, scipy.sparse as sp
from implicit.als import AlternatingLeastSquares
pairs, users, items, dim, out = np.load(sys.argv[1]), *map(int, sys.argv[2:5]), sys.argv[5]
matrix = sp.csr_matrix((np.ones(len(pairs), np.float32), pairs.T), shape=(users, items))
model = AlternatingLeastSquares(factors=dim, iterations=15, random_state=0, num_threads=2)
began = time.perf_counter()
model.fit(matrix, show_progress=False)
np.savez(out, users=model.user_factors, items=model.item_factors, seconds=time.perf_counter() - began)
"""


def generate(seed: int, choices: int = CHOICES) -> pa.Table:
    """Return generated choices, in the order of their users."""
    rng = np.random.default_rng(seed)
    users, items = rng.normal(size=(USERS, TASTE)), rng.normal(size=(ITEMS, TASTE)) / np.sqrt(TASTE)
    popularity = np.log(rng.zipf(1.6, ITEMS).clip(max=3000))  # a few items are chosen by many
    activity = 20 + rng.lognormal(0, 1.1, USERS)
    counts = np.minimum(np.maximum(20, activity / activity.sum() * choices), ITEMS // 2).astype(int)
    found = []
    for user in range(USERS):
        score = 2.0 * items @ users[user] + 0.8 * popularity + rng.gumbel(size=ITEMS)
        found.append(np.argpartition(-score, counts[user])[: counts[user]])
    owner = np.repeat(np.arange(USERS), counts)
    return pa.table({"user": owner, "item": np.concatenate(found), "label": np.ones(len(owner), np.float32)})


def described(folder: pathlib.Path, loss: str | dict[str, Any], epochs: int, drawn: int | None) -> configs.Config:
    """Return the config of two towers over ids; ``drawn``: the number of negatives that are drawn per batch."""
    table = {"kind": "id", "embedding_dim": DIM}
    data: dict[str, Any] = {
        "train": {"name": "parquet", "path": str(folder / "choices.parquet")},
        "split": {"by": "random", "share": 0.2},
        "shuffle_rows": 2_000_000,
        "user_column": "user",
        "features": [
            {**table, "name": "user", "num_buckets": USERS},
            {**table, "name": "item", "num_buckets": ITEMS},
        ],
    }
    if drawn is None:
        data["item_column"] = "item"
    else:
        items = {"name": "parquet", "path": str(folder / "items.parquet")}
        data["negatives"] = {
            "items": items, "group": "items", "id_column": "item", "weight_column": "count", "count": drawn
        }  # fmt: skip
    architecture = {"name": "dssm", "user_tower": {"input": "users"}, "item_tower": {"input": "items"}}
    return configs.from_mapping(
        {
            "data": data,
            "model": {
                "architecture": {**architecture, "negatives": "in_batch" if drawn is None else "sampled"},
                "groups": {"users": ["user"], "items": ["item"]},
            },
            "tasks": {"match": {"label": "label", "losses": [loss]}},
            "train": {
                "sparse_optimizer": {"name": "adam", "learning_rate": 0.003},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.001},
                "batch_size": 512,
                "epochs": epochs,
                "log_every_steps": 500,
            },
            "evaluate": {"batch_size": 1024, "catalog": {"top_k": list(TOP)}},
        }
    )


def pairs_of(source: Any) -> np.ndarray:
    """Return the users and items of all rows, (rows, 2)."""
    reader = source.open(["user", "item"])
    tables = [reader.read(chunk, "error").table for chunk in range(reader.num_chunks)]
    return np.concatenate([np.stack([t["user"].to_numpy(), t["item"].to_numpy()], axis=1) for t in tables])


def als(python: str, config: configs.Config, folder: pathlib.Path) -> tuple[dict[str, float], float]:
    """Train implicit's ALS on the same rows; return its results among all items, and the seconds."""
    assert config.data is not None
    train, test = pairs_of(config.data.train_rows), pairs_of(config.data.evaluate_rows)
    np.save(folder / "train.npy", train)
    out = folder / "als.npz"
    subprocess.run(
        [python, "-c", ALS, folder / "train.npy", str(USERS), str(ITEMS), str(DIM), out], check=True, env=ENV
    )
    made = np.load(out)
    seen = metrics.seen_by(train[:, 0], train[:, 1], test[:, 0])
    ranks = metrics.catalog_ranks(made["users"][test[:, 0]], made["items"], test[:, 1], seen)
    return metrics.catalog_metrics(ranks, test[:, 0], TOP), float(made["seconds"])


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--als", help="a Python with implicit")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--choices", type=int, default=CHOICES)
    parser.add_argument("--only", default="in_batch,no_log_q,sampled", help="names, separated by commas")
    given = parser.parse_args(arguments)
    ways: dict[str, tuple[Any, int | None]] = {
        "in_batch": ("in_batch_softmax", None),
        "no_log_q": ({"name": "in_batch_softmax", "log_q": False}, None),
        "sampled": ("sampled_softmax", 512),
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        choices = generate(given.seed, given.choices)
        pq.write_table(choices, folder / "choices.parquet", row_group_size=100_000)
        counts = np.bincount(choices["item"].to_numpy(), minlength=ITEMS)
        pq.write_table(pa.table({"item": np.arange(ITEMS), "count": counts + 1.0}), folder / "items.parquet")
        print(f"{choices.num_rows:,} choices; the most popular item has {counts.max():,}", flush=True)
        if given.als:
            found, seconds = als(given.als, described(folder, *ways["in_batch"][:1], 1, None), folder)
            print(f"als: {found} in {seconds:.0f} s", flush=True)
        for name in given.only.split(","):
            began = time.perf_counter()
            loss, drawn = ways[name]
            results = runs.train(described(folder, loss, given.epochs, drawn)).results
            print(f"{name}: {results} in {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
