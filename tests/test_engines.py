"""Runs and predictions within Ray and Spark, each a real cluster on this machine. Skipped where they are missing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparrow as sp
from tests.runs.groups import content, same, train, written
from tests.runs.groups import environment as group_environment

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
SMALL = ("data.shares=2",)


def example(name, *arguments, **environment):
    given = [sys.executable, str(ROOT / "examples" / name), *map(str, arguments)]
    held = {**group_environment(), "RAY_USAGE_STATS_ENABLED": "0", **environment}
    done = subprocess.run(given, capture_output=True, text=True, env=held, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def test_two_workers_of_ray_train(tmp_path):
    """To the bits of two processes of one machine."""
    pytest.importorskip("ray.train")
    config = written(tmp_path / "config", *SMALL, "train.mesh.data=2")
    example("ray_train.py", config, tmp_path / "ray", "--workers", 2, "--ray-dir", tmp_path / "notes")
    train(tmp_path / "here", *SMALL, processes=2, devices=2)
    assert same(content(tmp_path / "ray"), content(tmp_path / "here"))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """An export, a Parquet file of rows, and the predictions for them."""
    folder = tmp_path_factory.mktemp("engines")
    rng = np.random.default_rng(0)
    rows = pa.table(
        {"user": rng.integers(0, 50, 300), "item": rng.integers(0, 90, 300), "target": rng.integers(0, 2, 300)}
    )
    fitted = sp.fit(rows, target="target", folder=str(folder / "run"), epochs=1)
    fitted.export(str(folder / "export"))
    pq.write_table(rows, folder / "rows.parquet", row_group_size=100)
    [(task, expected)] = sp.serving.load(str(folder / "export")).predict(rows).items()
    return folder, task, expected


def compare(out, task, expected, rows):
    """The rows of all files, in any order."""
    found = pq.read_table(out)
    assert found.num_rows == len(expected)
    by_row = {
        tuple(row): score
        for *row, score in zip(*(rows[name].to_pylist() for name in rows.column_names), expected, strict=True)
    }
    for *row, score in zip(
        *(found[name].to_pylist() for name in [*rows.column_names, f"predicted_{task}"]), strict=True
    ):
        assert score == pytest.approx(by_row[tuple(row)], abs=1e-6)


def test_ray_data(exported, tmp_path):
    pytest.importorskip("ray.data")
    folder, task, expected = exported
    example("ray_predict.py", folder / "export", folder / "rows.parquet", tmp_path / "out")
    compare(tmp_path / "out", task, expected, pq.read_table(folder / "rows.parquet"))


def test_spark(exported, tmp_path):
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    folder, task, expected = exported
    example(
        "spark_predict.py",
        folder / "export",
        folder / "rows.parquet",
        tmp_path / "out",
        PYSPARK_PYTHON=sys.executable,
        SPARK_LOCAL_IP="127.0.0.1",
        HOME=os.environ.get("HOME", "/tmp"),
    )
    compare(tmp_path / "out", task, expected, pq.read_table(folder / "rows.parquet"))
