"""Configs of TorchEasyRec, one for each model, feature and reason: they import, or are refused with all reasons."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from sparrow import config, exports, runs, samples, serving
from sparrow.config.torcheasyrec import Edit, path_fields, read_config
from tests.config.family import FAMILY, REFUSED
from tests.config.rows import same_predictions

PATHS = [Edit("train_input_path", "train.parquet"), Edit("eval_input_path", "eval.parquet")]


@pytest.mark.parametrize("name", FAMILY)
def test_imports_with_nothing_but_paths(name):
    text = FAMILY[name]
    imported = read_config(
        text, f"{name}.config", [*PATHS, *(Edit(field, "tables.parquet") for field in path_fields(text)[2:])]
    )
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


QUICK = "dssm"
"""The representative of the family in the quick tests: two towers, a sampler and its file of items."""


@pytest.mark.parametrize(
    "name", [name if name == QUICK else pytest.param(name, marks=pytest.mark.slow) for name in FAMILY]
)
def test_a_sample_trains_evaluates_predicts_exports_and_serves(name, tmp_path):
    text = FAMILY[name]
    edits = [Edit(field, "rows.parquet") for field in path_fields(text)]
    edits += [Edit("train_config.num_steps", "20"), Edit("train_config.log_step_count_steps", "1")]
    edits += [Edit("data_config.batch_size", "32")]
    imported = config.import_config(text, f"{name}.config", edits)
    loaded = samples.write(imported, tmp_path / "data", rows=640)
    folder, files = tmp_path / "run", str(tmp_path / "data" / "evaluate.parquet")
    trained = runs.train(loaded, folder)
    assert trained.steps * loaded.train.accumulate == 20
    lines = [line for line in map(json.loads, (folder / "metrics.jsonl").open()) if line["kind"] == "train"]
    # The hint of rocket_launching, a part of its loss, grows while its booster learns faster than the other network.
    losses = [line["loss"] - line.get("loss/hint", 0.0) for line in lines]
    third = max(len(losses) // 3, 1)
    assert np.isfinite(losses).all()
    assert np.median(losses[-third:]) < np.median(losses[:third])
    program, state = runs.load(folder)
    assert np.isfinite(runs.Evaluator(program)(state)["loss"])
    count = runs.predict(program, state, files, tmp_path / "predicted.parquet")
    exports.export(program, state, tmp_path / "exported")
    model = serving.load(tmp_path / "exported")
    assert serving.predict(model, files, tmp_path / "served.parquet") == count == 160
    same_predictions(tmp_path / "predicted.parquet", tmp_path / "served.parquet")
    columns = pq.read_table(files).slice(0, 3).to_pydict()
    request = {column: columns[column] for column in model.signature["predict"]["inputs"]}
    assert len(next(iter(model.predict(request).values()))) == 3
