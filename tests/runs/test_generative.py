"""From vectors of items to codes, a model over them, and the items that its beam finds."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, runs
from sparrow.cli import main
from sparrow.errors import ConfigError
from sparrow.retrieval import CodeIndex

ITEMS = 24
TRAIN = """
train: {batch_size: 32, epochs: %d, seed: 0, sparse_optimizer: {name: adam, learning_rate: 0.02},
        dense_optimizer: {optimizer: adam, learning_rate: 0.02}}
"""
SID = """
data: {train: {name: parquet, path: items.parquet}, features: [{kind: raw, name: vector, dim: 4}]}
model: {architecture: {name: sid_rqkmeans, codebook: [6, 6]}, groups: {item: [vector]}}
tasks: {codes: {losses: [reconstruction], metrics: [collisions]}}
"""
TIGER = """
data:
  train: {name: parquet, path: rows.parquet}
  item_column: item
  user_column: user
  features:
    - {kind: sequence, name: seen_1, num_buckets: 6, embedding_dim: 8, table: layer_1, max_length: 3}
    - {kind: sequence, name: seen_2, num_buckets: 6, embedding_dim: 8, table: layer_2, max_length: 3}
    - {kind: id, name: code_1, num_buckets: 6, embedding_dim: 8, table: layer_1}
model:
  architecture: {name: tiger, codebook: [6, 6], max_length: 3, dropout_ratio: 0.0}
  groups: {history: [seen_1, seen_2], codes: [code_1]}
tasks:
  code_1: {label: code_1, losses: [softmax_cross_entropy], metrics: [accuracy]}
  code_2: {label: code_2, losses: [softmax_cross_entropy], metrics: [accuracy]}
"""


@pytest.mark.slow
def test_a_beam_finds_what_comes_next(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(6, 4)) * 4).repeat(4, axis=0) + rng.normal(size=(ITEMS, 4))
    pq.write_table(pa.table({"item": np.arange(ITEMS), "vector": pa.array(vectors.tolist())}), "items.parquet")
    coder = runs.train(config.loads(SID + TRAIN % 2), "sid")
    runs.predict(coder.program, coder.state, "items.parquet", "codes.parquet", columns=["item"])
    codes = CodeIndex.of(pq.read_table("codes.parquet"))
    assert codes.codes.shape == (ITEMS, 2)
    start = rng.integers(0, ITEMS, 256)
    seen = [[int(s), int(s + 5) % ITEMS] for s in start]  # the next item is always five further on
    rows = pa.table({"user": np.arange(256), "seen": pa.array(seen), "item": (start + 10) % ITEMS})
    for column, values in {**codes.columns(rows["seen"], "seen"), **codes.columns(rows["item"], "code")}.items():
        rows = rows.append_column(column, values)
    pq.write_table(rows, "rows.parquet")
    run = runs.train(config.loads(TIGER + TRAIN % 12), "tiger")
    with pytest.raises(ConfigError, match="needs the items and their codes"):
        run.item_index()
    users = rows.slice(0, 64).select(["user", "item", "seen_1", "seen_2"])  # without the codes of the next item
    found = run.recommend(users, 3, index=run.item_index("codes.parquet"))
    truth = dict(zip(users["user"].to_pylist(), users["item"].to_pylist(), strict=True))
    best = [
        truth[u] == i
        for u, i, r in zip(*(found[c].to_pylist() for c in ("user", "item", "rank")), strict=True)
        if r <= 3
    ]
    assert sum(best) > 0.8 * len(truth)
    pq.write_table(users, "users.parquet")
    main(["recommend", "tiger", "users.parquet", "best.parquet", "-k", "3", "--items", "codes.parquet"])
    assert pq.read_table("best.parquet").equals(found)
