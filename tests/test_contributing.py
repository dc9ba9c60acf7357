"""Parts from outside the package, as CONTRIBUTING.md promises: one of each, trained, evaluated and predicted with."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from tests.conftest import AS_USERS

ROOT = Path(__file__).parent.parent
PARTS = ROOT / "examples" / "own_parts.py"


def sparrow(*arguments: object) -> str:
    command = [sys.executable, "-m", "sparrow.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=AS_USERS)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    config = ROOT / "examples" / "own_parts.yaml"
    out = sparrow("train", config, "--import", PARTS, "--model-dir", folder / "run", "data.train.rows=32768")
    return folder, out


def test_a_run_of_own_parts_learns_counts(run):
    _, out = run
    mean = float(re.search(r"mean_prediction ([\d.]+)", out)[1])
    assert mean == pytest.approx(3.4, abs=0.15)  # the mean of the labels; the mean of the raw outputs is near 1.0


def test_predictions_are_those_of_the_own_loss(run):
    folder, _ = run
    rows = pa.table({"shop": [0, 19, 0, 19], "day": [0, 0, 1, 1]})
    pq.write_table(rows, folder / "rows.parquet")
    sparrow("predict", folder / "run", folder / "rows.parquet", folder / "scores.parquet", "--import", PARTS)
    scores = pq.read_table(folder / "scores.parquet")["visits"]
    assert pc.min(scores).as_py() > 0  # counts, not logarithms of counts
    low, high, low_odd, high_odd = scores.to_pylist()
    assert low < high
    assert low < low_odd < high_odd


def test_the_table_of_parts_names_files_that_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name in set(re.findall(r"`((?:sparrow|tests|docs|examples)/[\w/.]+)`", text)):
        assert (ROOT / name).exists(), f"CONTRIBUTING.md names {name}, which is not there"
