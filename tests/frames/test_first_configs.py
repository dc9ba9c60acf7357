"""`sparrow init --model`: a config for every model that needs no options, which assembles as it is."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config
from sparrow.cli import main
from sparrow.frames.models import HISTORIES, KNOWN, TOWERS

ROWS = 400
CHOICES = ["--user", "user", "--item", "item,genre"]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    rng = np.random.default_rng(0)
    columns = {"user": rng.integers(0, 40, ROWS), "item": rng.integers(0, 60, ROWS), "time": np.arange(ROWS)}
    more = {"genre": rng.integers(0, 5, ROWS), "price": rng.normal(size=ROWS), "label": rng.integers(0, 2, ROWS)}
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(pa.table(columns | more), path)
    return path


@pytest.mark.parametrize("model", KNOWN)
def test_every_model_has_a_first_config(model, log, tmp_path):
    given = CHOICES if model in (*TOWERS, "multi_tower") else []
    given = ["--user", "user", "--item", "item", "--time", "time"] if model in HISTORIES else given
    target = [] if model in (*TOWERS, *HISTORIES) else ["--target", "label"]
    made = tmp_path / "first.yaml"
    assert main(["init", str(log), str(made), "--model", model, *given, *target]) == 0
    loaded = config.load(made)
    assert f"architecture: {{name: {model}" in made.read_text()
    config.assemble(loaded)
