"""The command line, from a config to predictions, and one clear line for every mistake."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from sparrow import config
from sparrow.cli import main
from sparrow.cli.parsing import parsed
from sparrow.data import ClickLog, Parquet, write_clicks
from tests.runs.cases import FIELDS, IDS, case


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A config, data, and a model trained by the command line."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "tiny.yaml").write_text(config.dumps(case("train.steps=2")))
    write_clicks(ClickLog(impressions=50, fields=FIELDS, ids=IDS), folder / "rows.parquet")
    assert main(["train", str(folder / "tiny.yaml"), "train.steps=3", "--model-dir", str(folder / "model")]) == 0
    assert main(["export", str(folder / "model"), str(folder / "exported")]) == 0
    return folder


def test_from_config_to_predictions(folder, capsys):
    last = json.loads((folder / "model" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["kind"], last["step"]) == ("eval", 3)
    assert main(["eval", str(folder / "model"), "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results == {name: last[name] for name in ("loss", "auc", "exact_auc")}
    out = folder / "made" / "out.parquet"
    assert main(["predict", str(folder / "model"), str(folder / "rows.parquet"), str(out), "--columns", "id_0"]) == 0
    assert pq.read_table(out).column_names == ["id_0", "click"]
    assert "50 rows" in capsys.readouterr().out


def test_export_predicts_the_same_file(folder, capsys):
    rows, run, exported = (str(folder / name) for name in ("rows.parquet", "model", "exported_again"))
    assert main(["export", run, exported, "--step", "3"]) == 0
    assert "deepfm of step 3: " in capsys.readouterr().out
    for model in (run, exported):
        assert main(["predict", model, rows, f"{model}.parquet", "--columns", "label,id_2", "--batch-size", "7"]) == 0
    made, expected = (pq.read_table(f"{model}.parquet") for model in (exported, run))
    assert made.schema == expected.schema
    np.testing.assert_allclose(made["click"], expected["click"], rtol=0, atol=1e-6)
    code = f"import sys, sparrow.cli; sparrow.cli.main(['predict', {exported!r}, {rows!r}, {exported + '.2'!r}]); "
    code += "print([m for m in ('flax', 'sparrow.models', 'sparrow.config') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_an_export_is_evaluated_beside_its_run(folder, capsys):
    run, small = str(folder / "model"), str(folder / "small")
    assert main(["export", run, small, "--tables", "int4"]) == 0
    capsys.readouterr()
    for export in (str(folder / "exported"), small):
        assert main(["eval", run, "--export", export, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["export"].keys() == {"auc", "exact_auc"}
        away = [abs(found["export"][name] - found["run"][name]) for name in found["export"]]
        assert max(away) < (1e-5 if export != small else 0.1)
        assert (max(away) > 0) == (export == small)
    assert main(["eval", run, "--export", small]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["run", "export", "difference"]


def test_import_config_writes_what_loads(folder, capsys):
    assert main(["import-config", str(folder / "tiny.yaml"), "train.batch_size=7"]) == 0
    assert config.loads(capsys.readouterr().out) == case("train.steps=2", "train.batch_size=7")


def test_vocab(folder, capsys):
    pq.write_table(pa.table({"genres": ["a|b", "b", None], "year": [2000, 1999, 1999]}), folder / "films.parquet")
    arguments = ["vocab", str(folder / "films.parquet"), "genres:|", "year", "--output", str(folder / "words")]
    assert main([*arguments, "--max-words", "1"]) == 0
    assert (folder / "words" / "genres.txt").read_text().split() == ["b"]
    assert (folder / "words" / "year.txt").read_text().split() == ["1999"]
    assert "1 of 2 words" in capsys.readouterr().out


MISTAKES = {
    "no such config": (["train", "nowhere.yaml", "--model-dir", "x"], "nowhere.yaml: "),
    "no model folder": (["train", "{tiny}"], "add --model-dir"),
    "a model is there": (["train", "{tiny}", "--model-dir", "{model}"], "holds a finished run (step 3)"),
    "unknown field": (["train", "{tiny}", "train.batch_siz=1", "--model-dir", "x"], "did you mean 'batch_size'"),
    "not an override": (["train", "{tiny}", "train.batch_size", "--model-dir", "x"], "an override is written"),
    "no data": (["eval", "{model}", "data.evaluate={{name: parquet, path: none}}"], "none"),
    "no model": (["eval", "{folder}"], "there is no saved model"),
    "no column": (["predict", "{model}", "{folder}/films.parquet", "out.parquet"], "id_0"),
    "not Parquet": (["predict", "{model}", "{tiny}", "out.parquet"], "is text; give its name the ending .csv"),
    "another shape": (["eval", "{model}", "data.features[0].num_buckets=30"], "does not fit the model"),
    "no run to export": (["export", "{folder}", "out"], "there is no saved model"),
    "no such step": (["export", "{model}", "out", "--step", "2"], "step 2 is not saved; the saved steps are 3"),
    "no average": (["export", "{model}", "out", "--ema"], "keeps no average"),
    "an export is there": (["export", "{model}", "{exported}"], "is an export already"),
    "a folder is there": (["export", "{model}", "{model}", "--overwrite"], "is not an export"),
    "export with overrides": (["predict", "{exported}", "{tiny}", "out", "train.steps=1"], "an export has no config"),
    "no import": (["import-config", "{tiny}", "--import", "none.py"], "none.py: there is no such file"),
    "column of nothing": (["vocab", "{folder}/films.parquet", "genre"], "did you mean 'genres'"),
    "empty separator": (["vocab", "{folder}/films.parquet", "genres:"], "NAME:SEPARATOR"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line(name, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    pq.write_table(pa.table({"genres": ["a"]}), folder / "films.parquet")
    arguments, message = MISTAKES[name]
    places = {
        "tiny": folder / "tiny.yaml",
        "model": folder / "model",
        "folder": folder,
        "exported": folder / "exported",
    }
    capsys.readouterr()
    assert main([argument.format(**places) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sparrow: ")
    assert message.lower() in error.lower()
    # A config that differs from the saved one is told field by field.
    assert len(error.splitlines()) == (2 if name == "another shape" else 1)


def test_evaluation_on_a_file(folder, capsys):
    """The source comes from the file's ending, also where the config has no data to evaluate on."""
    run, rows = str(folder / "model"), folder / "rows.parquet"
    assert main(["eval", run, "data.evaluate=null"]) == 2
    assert "add data.evaluate to the config, or give --eval-input-path FILE" in capsys.readouterr().err
    for changes in ([], ["data.evaluate=null"]):
        assert main(["eval", run, *changes, "--eval-input-path", str(rows), "--json"]) == 0
        results = json.loads(capsys.readouterr().out)
        assert set(results) == {"loss", "auc", "exact_auc"}
    csv = folder / "rows.csv"
    pa.csv.write_csv(pq.read_table(rows), csv)
    assert main(["eval", run, "--eval-input-path", str(csv), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(results["loss"], rel=1e-5)
    tiny = str(folder / "tiny.yaml")
    assert main(["import-config", tiny, "data.evaluate=null", "--eval-input-path", str(rows)]) == 0
    assert config.loads(capsys.readouterr().out).data.evaluate == Parquet(str(rows))


def test_a_metric_that_is_not_defined_has_its_reason(folder, capsys):
    """One label only: no AUC."""
    table = pq.read_table(folder / "rows.parquet")
    ones = folder / "ones.parquet"
    at = table.column_names.index("label")
    pq.write_table(table.set_column(at, "label", pa.array(np.ones(len(table), np.int64))), ones)
    run = str(folder / "model")
    assert main(["eval", run, "--eval-input-path", str(ones)]) == 0
    assert "nan  (no negative labels)" in capsys.readouterr().out
    assert main(["eval", run, "--eval-input-path", str(ones), "--json"]) == 0
    assert "auc is NaN: no negative labels" in capsys.readouterr().err


def test_help_needs_no_libraries():
    code = "import sys, sparrow.cli; print([m for m in ('jax', 'pyarrow') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_options_are_checked():
    with pytest.raises(SystemExit) as stop:
        main(["predict", "a", "b", "c", "--batch-size", "0"])
    assert stop.value.code == 2


def test_overrides_may_stand_anywhere():
    options = parsed(["train", "a.yaml", "train.steps=3", "--model-dir", "x", "--resume", "train.ema=0.9"])
    assert options.overrides == ["train.steps=3", "train.ema=0.9"]
    for wrong in (["train", "a.yaml", "--resum", "x", "--nonsense"], ["import-config", "a.yaml", "--model-dir", "x"]):
        with pytest.raises(SystemExit) as stop:
            parsed(wrong)
        assert stop.value.code == 2
