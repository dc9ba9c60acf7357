"""The documentation's lines about serving run as written, on an export of examples/dssm.yaml."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, exports
from tests.exports.cases import program_and_state

ROOT = Path(__file__).parents[2]


BLOCK = re.compile(r"```py\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documented")
    exports.export(*program_and_state(config.load(ROOT / "examples" / "dssm.yaml")), folder / "exported")
    columns = {"user": [1, 2], "item": [3, 4], "category": [5, 6], "price": [1.0, 2.0]}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return folder


def test_the_guide_runs_as_written(folder, monkeypatch, capsys):
    (block,) = BLOCK.findall((ROOT / "docs" / "guides" / "export.md").read_text())
    monkeypatch.chdir(folder)
    exec(block, {})
    assert pq.read_table("scores.parquet").column_names == ["user", "item_vector", "match", "user_vector"]
    inputs, predictions, shape = capsys.readouterr().out.splitlines()
    for shown in (inputs, shape):
        assert shown in block
    assert predictions.startswith("{'match': array([")


def test_the_tutorial_runs_as_written(folder, monkeypatch):
    (block,) = BLOCK.findall((ROOT / "docs" / "tutorials" / "two_towers.md").read_text())
    monkeypatch.chdir(folder)
    scope = {}
    exec(block, scope)
    assert scope["items"].shape == (2, 16)
