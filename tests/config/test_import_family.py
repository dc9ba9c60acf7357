"""Configs of TorchEasyRec, one for each model, feature and reason: they import, or are refused with all reasons."""

import pytest

from sparrow import config, exports, runs, serving
from sparrow.config.torcheasyrec import Edit, read_config
from tests.config.family import FAMILY, REFUSED
from tests.config.rows import write_items, write_rows

PATHS = [Edit("train_input_path", "train.parquet"), Edit("eval_input_path", "eval.parquet")]
MOST = 8  # of the family that may be refused, as 20 of 65


def sampler_paths(text, path):
    """Return edits of the paths of a sampler's tables."""
    return [Edit("data_config.negative_sampler.input_path", str(path))] if "negative_sampler {" in text else []


@pytest.mark.parametrize("name", FAMILY)
def test_imports_with_nothing_but_paths(name):
    text = FAMILY[name]
    imported = read_config(text, f"{name}.config", [*PATHS, *sampler_paths(text, "items.parquet")])
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
    text, rows, items = FAMILY[name], tmp_path / "data", tmp_path / "items.parquet"
    files = str(rows / "rows.parquet")
    edits = [
        *(Edit(path, files) for path in ("train_input_path", "eval_input_path")),
        *sampler_paths(text, items),
        Edit("train_config.num_steps", "50"),
        Edit("data_config.batch_size", "8"),
    ]
    loaded = config.import_config(text, f"{name}.config", edits)
    columns = write_rows(loaded, rows)
    if loaded.data.negatives is not None:
        write_items(loaded, items)
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
    request = {column: list(columns[column])[:3] for column in model.signature["predict"]["inputs"]}
    assert len(next(iter(model.predict(request).values()))) == 3
