"""Commands around a run: version, completion, quiet runs, first configs, comparisons; and how soon they answer."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from sparrow import config
from sparrow.cli import main
from sparrow.cli.inputs import given_config
from sparrow.cli.parsing import COMMANDS
from sparrow.versions import __version__
from tests.runs.cases import case


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"sparrow {__version__}\n"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("train x.yaml --model-dr r", "train has no option --model-dr: did you mean --model-dir?"),
        ("--quiet train x.yaml", "write --quiet after the command: sparrow train --quiet"),
        ("report a --zzzzz=1", "report has no option --zzzzz\n"),
        ("init a.csv b.yaml c", "unexpected argument 'c'"),
    ],
)
def test_an_unknown_option_gets_the_nearest(line, sentence, capsys):
    with pytest.raises(SystemExit):
        main(line.split())
    assert sentence in capsys.readouterr().err


def test_an_unknown_command(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["trian"])
    assert stop.value.code == 2
    assert "unknown 'trian': did you mean 'train'?" in capsys.readouterr().err


def complete(script, *words):
    """The completions of the last of some words, in a shell that has read the script."""
    line = " ".join(f'"{word}"' for word in words)
    code = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _sparrow; printf "%s\\n" "${{COMPREPLY[@]}}"'
    result = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "the following arguments are required: config\n"),
        (["plan", "first.yaml", "--devices", "x"], "argument --devices: must be an integer of at least 1, got 'x'\n"),
        (["tune", "first.yaml", "--trials", "many"], "argument --trials: must be an integer of at least 1, got 'many'"),
    ],
)
def test_wrong_arguments(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_a_vocabulary_of_a_text_file_needs_no_separator(tmp_path):
    (tmp_path / "items.csv").write_text("item;price\nred;1\nblue;2\nred;3\n")
    assert main(["vocab", str(tmp_path / "items.csv"), "item", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "item.txt").read_text() == "red\nblue\n"


def test_completion_of_bash(capsys):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert set(complete(script, "sparrow", "")) >= {command.name for command in COMMANDS}
    assert complete(script, "sparrow", "tra") == ["train"]
    assert complete(script, "sparrow", "train", "--resu") == ["--resume"]
    assert set(complete(script, "sparrow", "completion", "")) >= {"bash", "zsh"}
    assert "--supervised" not in script


def test_completion_of_zsh(capsys):
    assert main(["completion", "zsh"]) == 0
    script = capsys.readouterr().out
    assert script.startswith("#compdef sparrow\n")
    assert "bashcompinit" in script


def clicks(rows=200):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "row": np.arange(rows),
            "user_id": rng.integers(0, 30, rows),
            "city name": rng.choice(["Rome", "Oslo", "Lima"], rows),
            "tags": ["|".join(rng.choice(["a", "b", "c"], 2)) for _ in range(rows)],
            "seen": rng.integers(0, 9, (rows, 3)).tolist(),
            "spent": rng.lognormal(0.0, 3.0, rows),
            "age": rng.normal(40.0, 10.0, rows),
            "click": rng.integers(0, 2, rows),
            "empty": pa.nulls(rows),
        }
    )


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_first_config_trains(tmp_path, capsys, suffix):
    table, data = clicks(), tmp_path / f"clicks.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, data)
    else:
        csv.write_csv(table.drop_columns(["seen"]), data)
    made = tmp_path / "first.yaml"
    assert main(["init", str(data), str(made)]) == 0
    loaded = config.load(made)
    kinds = {feature.name: type(feature).__name__ for feature in loaded.data.features}
    expected = {"user_id": "IdFeature", "city name": "IdFeature", "tags": "IdFeature", "seen": "IdFeature"}
    expected |= {"spent": "RawFeature", "age": "RawFeature"}
    assert kinds == {name: kind for name, kind in expected.items() if suffix == "parquet" or name != "seen"}
    assert next(feature for feature in loaded.data.features if feature.name == "tags").separator == "|"
    assert next(feature for feature in loaded.data.features if feature.name == "spent").log
    text = made.read_text()
    assert "row: left out: it is different in every row" in text
    assert "empty: left out: it holds no values" in text
    assert main(["init", str(data), str(made)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["train", str(made), "train.steps=1", "train.epochs=null", "--model-dir", str(tmp_path / "run")]) == 0


def test_other_files_for_a_config_that_holds_rows_out(tmp_path):
    """The rows to evaluate on are of the other file too."""
    pq.write_table(clicks(), tmp_path / "clicks.parquet")
    made, other = tmp_path / "first.yaml", str(tmp_path / "other.parquet")
    assert main(["init", str(tmp_path / "clicks.parquet"), str(made)]) == 0
    options = {"config": str(made), "overrides": [], "edit_config_json": None, "eval_input_path": None}
    options |= {"fine_tune_checkpoint": None, "train_input_path": other}
    data = given_config(argparse.Namespace(**options)).data
    assert (data.train_rows.source.path, data.evaluate_rows.source.path) == (other, other)
    third = str(tmp_path / "third.parquet")
    data = given_config(argparse.Namespace(**options | {"eval_input_path": third})).data
    assert (data.train_rows.source.path, data.evaluate_rows.path) == (other, third)


def test_first_configs_of_other_tasks(tmp_path, capsys):
    """Numbers alone get buckets, for a model needs a table; other targets are regressions, or must be named."""
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"x": rng.normal(size=99), "price": rng.normal(size=99)}), tmp_path / "a.parquet")
    assert main(["init", str(tmp_path / "a.parquet")]) == 2
    assert "--target; there are x, price" in capsys.readouterr().err
    assert main(["init", str(tmp_path / "a.parquet"), "--target", "prise"]) == 2
    assert "did you mean 'price'" in capsys.readouterr().err
    assert main(["init", str(tmp_path / "a.parquet"), "--target", "price"]) == 0
    loaded = config.loads(capsys.readouterr().out)
    assert len(loaded.data.features[0].boundaries) == 9
    assert [type(loss).__name__ for loss in loaded.tasks["price"].losses] == ["L2"]
    (tmp_path / "b.parquet").write_bytes(b"no Parquet")
    assert main(["init", str(tmp_path / "b.parquet")]) == 2
    assert "is text; give its name the ending .csv" in capsys.readouterr().err


@pytest.fixture(scope="module")
def runs_folder(tmp_path_factory):
    """Two runs with other learning rates."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tiny.yaml").write_text(config.dumps(case("train.steps=2")))
    for name, rate in (("a", 0.1), ("b", 0.2)):
        rates = f"train.dense_optimizer.learning_rate={rate}"
        arguments = ["train", str(folder / "tiny.yaml"), rates, "--model-dir", str(folder / name), "--quiet"]
        assert main(arguments) == 0
    return folder


def test_compare(runs_folder, capsys):
    names = [str(runs_folder / name) for name in "ab"]
    assert main(["compare", *names, "--by", "auc"]) == 0
    text = capsys.readouterr().out
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "dense_optimizer.learning_rate" in text
    assert main(["compare", *names, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: fields["fields"] for name, fields in found.items()} == {
        "a": {"train.dense_optimizer.learning_rate": "0.1"},
        "b": {"train.dense_optimizer.learning_rate": "0.2"},
    }
    assert found["a"]["last_step"] == 2
    assert main(["compare", *names, "--by", "nothing"]) == 2
    assert "they have loss" in capsys.readouterr().err


def test_quiet_and_loud(runs_folder, capsys):
    arguments = ["train", str(runs_folder / "tiny.yaml"), "--model-dir", str(runs_folder / "c"), "--overwrite"]
    arguments += ["train.summaries=[loss, learning_rate]"]
    assert main(arguments) == 0
    loud = capsys.readouterr().out
    assert loud.startswith(f"sparrow {__version__}: training {runs_folder / 'tiny.yaml'}\n")
    assert re.search(r"^train  step 2/2  .*  lr \S+  sparse_lr \S+", loud, re.MULTILINE)
    assert main([*arguments, "--quiet"]) == 0
    assert tuple(capsys.readouterr()) == ("", "")


@pytest.mark.slow
def test_compiled_programs_are_kept(runs_folder, tmp_path):
    """In a folder of your own, which is logged; not where the switch or JAX's own variable says so."""
    code = "import sys, sparrow.cli; sparrow.cli.main(sys.argv[1:])\n"
    code += "import jax; print(jax.config.jax_compilation_cache_dir)"
    arguments = ["eval", str(runs_folder / "a")]
    base = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    base |= {"PYTHONPATH": os.getcwd(), "SPARROW_CACHE_DIR": str(tmp_path / "cache")}

    def folder_of(**more):
        result = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, env={**base, **more}
        )
        return result.stdout.splitlines()[-1], result.stderr

    kept, log = folder_of()
    assert kept.startswith(str(tmp_path / "cache" / "programs-"))
    assert f"compiled programs are kept in {kept}" in log
    assert any(os.scandir(kept))
    assert folder_of(SPARROW_KEEP_PROGRAMS="0")[0] == "None"


def test_help_is_quick():
    """The best of three, so that a busy machine does not fail it."""
    taken = []
    for _ in range(3):
        before = os.times()
        subprocess.run([sys.executable, "-m", "sparrow.cli", "--help"], capture_output=True, check=True)
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(taken) < 0.5  # seconds of processor
