"""The documentation's lines about serving run as written, on an export of examples/dssm.yaml."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, exports
from sparrow.runs.vectors.recommending import item_index
from tests.exports.cases import program_and_state

ROOT = Path(__file__).parents[2]


BLOCK = re.compile(r"```py\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documented")
    program, state = program_and_state(config.load(ROOT / "examples" / "dssm.yaml"))
    items = pa.table(
        {"item": range(40), "category": [n % 10 for n in range(40)], "price": [float(n) for n in range(40)]}
    )
    index = item_index(program, state, items, attributes=["category"])
    exports.export(program, state, folder / "exported", index=index)
    columns = {"user": [1, 2], "item": [3, 4], "category": [5, 6], "price": [1.0, 2.0]}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    return folder


def test_the_guide_runs_as_written(folder, monkeypatch, capsys):
    block, items = BLOCK.findall((ROOT / "docs" / "guides" / "export.md").read_text())
    monkeypatch.chdir(folder)
    exec(block, {})
    assert pq.read_table("scores.parquet").column_names == ["user", "item_vector", "match", "user_vector"]
    inputs, predictions, shape = capsys.readouterr().out.splitlines()
    for shown in (inputs, shape):
        assert shown in block
    assert predictions.startswith("{'match': array([")
    scope = {}
    exec(items, scope)
    assert set(scope["found"]["item"].to_pylist()) == {4, 5, 14, 15, 24, 25, 34, 35}


def test_the_tutorial_runs_as_written(folder, monkeypatch):
    (block,) = BLOCK.findall((ROOT / "docs" / "tutorials" / "two_towers.md").read_text())
    monkeypatch.chdir(folder)
    scope = {}
    exec(block, scope)
    assert scope["items"].shape == (2, 16)
