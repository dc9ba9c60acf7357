"""The README's lines about serving run as written, on an export of examples/dssm.yaml."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparrow import config, exports
from tests.exports.cases import program_and_state

ROOT = Path(__file__).parents[2]


def test_serving_runs_as_written(tmp_path, monkeypatch, capsys):
    (block,) = re.findall(r"```py\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    exports.export(*program_and_state(config.load(ROOT / "examples" / "dssm.yaml")), tmp_path / "exported")
    columns = {"user": [1, 2], "item": [3, 4], "category": [5, 6], "price": [1.0, 2.0]}
    pq.write_table(pa.table(columns), tmp_path / "rows.parquet")
    monkeypatch.chdir(tmp_path)
    exec(block, {})
    assert pq.read_table("scores.parquet").column_names == ["user", "item_vector", "match", "user_vector"]
    inputs, predictions, shape = capsys.readouterr().out.splitlines()
    for shown in (inputs, shape):
        assert shown in block
    assert predictions.startswith("{'match': array([")
