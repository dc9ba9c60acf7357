"""Configs of TorchEasyRec, one for each model, feature and reason: they import, or are refused with all reasons."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config, exports, runs, serving
from sparrow.config.torcheasyrec import Edit, read_config
from tests.config.family import FAMILY, REFUSED
from tests.config.rows import same_predictions, write_items, write_pairs, write_rows, write_tree

PATHS = [Edit("train_input_path", "train.parquet"), Edit("eval_input_path", "eval.parquet")]


def sampler_paths(text, folder):
    """Return edits of the empty paths of a sampler's tables."""
    found = re.search(r"(\w*sampler\w*) \{", text)
    if found is None:
        return []
    paths = re.findall(r"(\w*input_path): (?:\"\"|'')", text[found.start() :])
    tables = {"input_path": "items", "item_input_path": "items", "edge_input_path": "edges"}
    return [
        Edit(f"data_config.{found.group(1)}.{path}", f"{folder}/{tables.get(path, 'pairs')}.parquet") for path in paths
    ]


@pytest.mark.parametrize("name", FAMILY)
def test_imports_with_nothing_but_paths(name):
    text = FAMILY[name]
    imported = read_config(text, f"{name}.config", [*PATHS, *sampler_paths(text, "tables")])
    assert imported.error is None, str(imported.error)
    assert imported.config.data.train.path == "train.parquet"
    config.assemble(imported.config)
    assert config.loads(config.dumps(imported.config)) == imported.config
    assert all(outcome.text.startswith(("sets ", "no effect: ")) for outcome in imported.outcomes)
    assert not [outcome for outcome in imported.outcomes if "nothing, because" in outcome.text]


@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused_with_all_reasons(name):
    text, paths = REFUSED[name]
    imported = read_config(text, f"{name}.config", PATHS)
    assert imported.config is None
    found = {".".join(map(str, problem.path)) for problem in imported.error.problems}
    assert found == set(paths), str(imported.error)
    assert all(problem.line for problem in imported.error.problems)


def test_most_of_the_family_imports():
    assert len(REFUSED) * 45 <= len(FAMILY) * 20


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILY)
def test_trains_evaluates_predicts_exports_and_serves(name, tmp_path):
    text, rows = FAMILY[name], tmp_path / "data"
    files = str(rows / "rows.parquet")
    edits = [
        *(Edit(path, files) for path in ("train_input_path", "eval_input_path")),
        *sampler_paths(text, tmp_path),
        Edit("train_config.num_steps", "50"),
        Edit("data_config.batch_size", "8"),
    ]
    loaded = config.import_config(text, f"{name}.config", edits)
    columns = write_rows(loaded, rows)
    if loaded.data.negatives is not None:
        write_items(loaded, tmp_path / "items.parquet")
        write_pairs(loaded, tmp_path / "pairs.parquet")
    if loaded.data.tree is not None:
        write_tree(loaded, tmp_path / "items.parquet", tmp_path / "edges.parquet")
        columns[loaded.data.tree.id_column] = np.arange(len(columns["clk"])) % 8 + 7  # leaves
        pq.write_table(pa.table(columns), files)
    folder = tmp_path / "run"
    trained = runs.train(loaded, folder)
    assert trained.steps * loaded.train.accumulate == 50
    program, state = runs.load(folder)
    results = runs.Evaluator(program)(state)
    assert results["loss"] == results["loss"]  # a number
    count = runs.predict(program, state, files, tmp_path / "predicted.parquet")
    exports.export(program, state, tmp_path / "exported")
    model = serving.load(tmp_path / "exported")
    assert serving.predict(model, files, tmp_path / "served.parquet") == count == len(next(iter(columns.values())))
    same_predictions(tmp_path / "predicted.parquet", tmp_path / "served.parquet")
    request = {column: list(columns[column])[:3] for column in model.signature["predict"]["inputs"]}
    assert len(next(iter(model.predict(request).values()))) == 3
