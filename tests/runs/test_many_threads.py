"""Runs whose data is made by many threads: the bits of one thread, also when resumed; bounded memory."""

import gc
import io
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.data import DataError
from sparrow.runs.loop.progress import Clock
from sparrow.runs.parts.reporting import status_bytes
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

FEATURES = [
    {"kind": "id", "name": "item", "num_buckets": 50, "embedding_dim": 4},
    {"kind": "id", "name": "user", "hash_bucket_size": 30, "embedding_dim": 4},
    {"kind": "id", "name": "seen", "num_buckets": 40, "embedding_dim": 4, "pooling": "mean"},
]
NAMES = [feature["name"] for feature in FEATURES]


def write(path, bad=()):
    rng = np.random.default_rng(0)
    items = rng.integers(0, 50, 900)
    items[list(bad)] = 77
    table = pa.table(
        {
            "item": pa.array(items, pa.int32()),
            "user": [f"user {n}" for n in rng.integers(0, 60, 900)],
            "seen": pa.array([rng.integers(0, 40, n).tolist() for n in rng.integers(0, 6, 900)], pa.list_(pa.int32())),
            "label": pa.array(rng.integers(0, 2, 900), pa.float32()),
        }
    )
    pq.write_table(table, path, row_group_size=100)
    return str(path)


def config(path, *overrides, features=FEATURES, **data):
    names = [feature["name"] for feature in features]
    return case(
        *overrides,
        data={"train": {"name": "parquet", "path": path}, "shuffle_rows": 150, "features": features, **data},
        model={
            "architecture": {"name": "deepfm", "deep": {"hidden_units": [4]}},
            "groups": {"wide": names, "deep": names},
        },
    )


def test_a_run_resumed_with_more_threads_has_the_same_bits(tmp_path):
    path = write(tmp_path / "a.parquet", bad=(5, 333, 334))
    options = {"bad_rows": "skip", "memory_ahead": 20_000}
    settings = ("train.batch_size=64", "train.log_every_steps=7")
    whole, log = io.StringIO(), io.StringIO()
    expected = runs.train(config(path, *settings, "train.steps=30", threads=1, **options), stream=whole)
    runs.train(config(path, *settings, "train.steps=17", threads=7, **options), tmp_path / "run", stream=io.StringIO())
    resumed = runs.train(
        config(path, *settings, "train.steps=30", threads=3, **options), tmp_path / "run", resume=True, stream=log
    )
    assert "malformed rows were left out" in whole.getvalue()
    assert (
        whole.getvalue().splitlines()[-1] == [line for line in log.getvalue().splitlines() if "malformed" in line][-1]
    )
    assert_same_bits(expected.state, resumed.state)


def test_a_wrong_row_ends_the_run_with_its_place(tmp_path):
    path, before = write(tmp_path / "a.parquet", bad=(555,)), set(threading.enumerate())
    with pytest.raises(DataError, match=r"a\.parquet, row 555, column 'item': id 77 is outside 0 to 49"):
        runs.train(config(path, "train.batch_size=64", threads=5), stream=io.StringIO())
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("sparrow-data")]


@pytest.mark.slow
def test_memory_stays_bounded_over_20_000_steps(tmp_path, monkeypatch):
    """The memory that 2,000 steps took is enough for 20,000."""
    path = write(tmp_path / "a.parquet")
    seen = []
    count = Clock.count

    def counted(self, examples):
        seen.append(0)
        if len(seen) in (2_000, 20_000):
            gc.collect()
            seen[-1] = status_bytes("VmRSS")
        count(self, examples)

    monkeypatch.setattr(Clock, "count", counted)
    settings = ("train.batch_size=8", "train.steps=20000", "train.log_every_steps=5000")
    runs.train(config(path, *settings, features=FEATURES[:2], threads=3), stream=io.StringIO())
    assert len(seen) == 20_000
    assert seen[-1] - seen[1_999] < 20 * 2**20
