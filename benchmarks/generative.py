"""Recall@10 of a generative retriever beside SASRec, on the same generated histories.

    python -m benchmarks.generative [--users N] [--items N] [--epochs N]

Items have vectors around the centers of groups; a user walks from group to group by fixed chances, and takes an item of
the group, popular ones more often. The last item of each user is held out; both models learn to predict every item from
those before it, in as many epochs, and rank all items but those that the user has seen. The codes are those of
`sid_rqkmeans` on the vectors; SASRec knows items by their ids.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import config, runs
from sparrow.retrieval import CodeIndex

GROUPS, DIM, LENGTH, CODES = 40, 16, 20, (32, 32, 32)
TRAIN = """
train: {batch_size: 256, epochs: %d, seed: 0, log_every_steps: 200,
        sparse_optimizer: {name: adam, learning_rate: 0.003}, dense_optimizer: {optimizer: adam, learning_rate: 0.003}}
"""


def made(users: int, items: int) -> tuple[Any, Any, Any]:
    """Return items with vectors, a row for each event of a user with the items before it, and the last events."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, GROUPS, items)
    vectors = rng.normal(size=(GROUPS, DIM))[group] + 0.5 * rng.normal(size=(items, DIM))
    chances = rng.dirichlet(np.full(GROUPS, 0.05), GROUPS)
    popular = rng.zipf(1.5, items).clip(max=50).astype(float)
    members = [np.flatnonzero(group == g) if (group == g).any() else np.array([0]) for g in range(GROUPS)]
    rows: dict[str, list[Any]] = {"user": [], "seen": [], "item": []}
    last: dict[str, list[Any]] = {"user": [], "seen": [], "item": []}
    for user in range(users):
        at, walk = rng.integers(GROUPS), []
        for _ in range(rng.integers(6, LENGTH)):
            at = rng.choice(GROUPS, p=chances[at])
            own = members[at]
            walk.append(int(rng.choice(own, p=popular[own] / popular[own].sum())))
        for place in range(1, len(walk)):
            to = last if place == len(walk) - 1 else rows
            for name, value in (("user", user), ("seen", walk[:place]), ("item", walk[place])):
                to[name].append(value)
    catalog = pa.table({"item": np.arange(items), "vector": pa.array(vectors.tolist(), pa.list_(pa.float64()))})
    return catalog, pa.table(rows), pa.table(last)


def recall(run: Any, last: Any, index: Any) -> float:
    """Return the share of users whose last item is among the best ten that they have not seen."""
    truth = dict(zip(last["user"].to_pylist(), last["item"].to_pylist(), strict=True))
    exclude = [
        [i for i in seen if i != own] for seen, own in zip(last["seen"].to_pylist(), truth.values(), strict=True)
    ]
    found = run.recommend(last, 10, index=index, exclude=exclude)
    column = "user" if "user" in found.column_names else "row"
    users = last["user"].to_pylist()
    hits = [
        truth[user if column == "user" else users[user]] == item
        for user, item in zip(found[column].to_pylist(), found["item"].to_pylist(), strict=True)
    ]
    return sum(hits) / len(truth)


def main() -> None:
    """Train three models and print the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--users", type=int, default=3000)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    catalog, rows, last = made(options.users, options.items)
    pq.write_table(catalog, folder / "items.parquet")
    train, results = TRAIN % options.epochs, {}
    began = time.process_time()
    sid = f"""
data: {{train: {{name: parquet, path: {folder}/items.parquet}}, features: [{{kind: raw, name: vector, dim: {DIM}}}]}}
model: {{architecture: {{name: sid_rqkmeans, codebook: {list(CODES)}}}, groups: {{item: [vector]}}}}
tasks: {{codes: {{losses: [reconstruction], metrics: [collisions]}}}}
{train}"""
    coder = runs.train(config.loads(sid), folder / "sid")
    runs.predict(coder.program, coder.state, catalog, folder / "codes.parquet", columns=["item"])
    coded = pq.read_table(folder / "codes.parquet")
    codes = CodeIndex.of(coded)
    results["distinct codes"] = len(np.unique(codes.codes, axis=0))
    for name, table in (("train", rows), ("last", last)):
        own = {**codes.columns(table["seen"], "seen"), **codes.columns(table["item"], "code")}
        for column, values in own.items():
            table = table.append_column(column, values)
        pq.write_table(table, folder / f"{name}.parquet")
    layers = range(1, len(CODES) + 1)
    own = {n: f"num_buckets: {CODES[n - 1]}, embedding_dim: 32, table: layer_{n}" for n in layers}
    features = [f"{{kind: sequence, name: seen_{n}, max_length: {LENGTH}, {own[n]}}}" for n in layers]
    features += [f"{{kind: id, name: code_{n}, {own[n]}}}" for n in layers[:-1]]
    tasks = [f"code_{n}: {{label: code_{n}, losses: [softmax_cross_entropy]}}" for n in layers]
    tiger = f"""
data:
  train: {{name: parquet, path: {folder}/train.parquet}}
  user_column: user
  item_column: item
  features: [{", ".join(features)}]
model:
  architecture: {{name: tiger, codebook: {list(CODES)}, max_length: {LENGTH}, num_heads: 2}}
  groups:
    history: [{", ".join(f"seen_{n}" for n in layers)}]
    codes: [{", ".join(f"code_{n}" for n in layers[:-1])}]
tasks: {{{", ".join(tasks)}}}
{train}"""
    sasrec = f"""
data:
  train: {{name: parquet, path: {folder}/train.parquet}}
  user_column: user
  item_column: item
  features:
    - {{kind: sequence, name: seen, num_buckets: {options.items}, embedding_dim: 64, table: item, max_length: {LENGTH}}}
    - {{kind: id, name: item, num_buckets: {options.items}, embedding_dim: 64, table: item}}
model:
  architecture: {{name: sasrec, item_tower: {{input: item}}, max_length: {LENGTH}, num_heads: 2, every_position: false}}
  groups: {{history: [seen], item: [item]}}
tasks: {{next: {{losses: [in_batch_softmax]}}}}
{train}"""
    held = pq.read_table(folder / "last.parquet")
    for name, text in (("tiger", tiger), ("sasrec", sasrec)):
        start = time.process_time()
        run = runs.train(config.loads(text), folder / name)
        index = run.item_index(str(folder / "codes.parquet")) if name == "tiger" else run.item_index(catalog)
        results[name] = {
            "recall@10": round(recall(run, held, index), 4),
            "seconds": round(time.process_time() - start, 1),
        }
        print(json.dumps(results), flush=True)
    popular = np.argsort(-np.bincount(rows["item"].to_numpy(), minlength=options.items))[:10]
    results["popular"] = round(float(np.isin(held["item"].to_numpy(), popular).mean()), 4)
    print(json.dumps({**results, "rows": rows.num_rows, "all seconds": round(time.process_time() - began, 1)}))


if __name__ == "__main__":
    main()
