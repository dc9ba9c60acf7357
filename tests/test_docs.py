"""Every block of code in README.md and docs/ runs: Python as written, configs on generated data, commands are parsed.

Kinds of blocks: ``python`` runs, all blocks of a file in one scope; ``py`` runs in a test of its own, which knows what
it needs, or is code of a peer; ``yaml`` is a config, or a part of one that is laid over a whole one; ``protobuf`` is a
config of TorchEasyRec, which `tests/test_migrate.py` runs; no kind means commands of a shell.
"""

import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import sparrow as sp
from sparrow import config, runs
from sparrow.cli.parsing import parsed
from tests.runs.cases import BASE

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)(?: title=\"[^\"\n]*\")?\n(.*?)^```$", re.DOTALL | re.MULTILINE)
KINDS = {"python", "py", "yaml", "protobuf", ""}


def in_make_test(path):
    """The README and the first pages run in `make test`; the many pages of the folders in `make test-all`."""
    return pytest.param(path, marks=() if path.parent in (ROOT, ROOT / "docs") else pytest.mark.slow)


def blocks(kind):
    """The blocks of one kind, by file and line."""
    found = {}
    for path in FILES:
        text = path.read_text()
        for match in BLOCK.finditer(text):
            if match[1] == kind:
                found[f"{path.name}:{text[: match.start()].count(chr(10)) + 1}"] = match[2]
    return found


def test_no_block_is_of_a_kind_that_nothing_runs():
    for path in FILES:
        text = path.read_text()
        assert {match[1] for match in BLOCK.finditer(text)} <= KINDS, path.name
        assert len(BLOCK.findall(text)) * 2 == len(re.findall(r"^\s*```", text, re.MULTILINE)), path.name


@pytest.mark.parametrize("path", list(map(in_make_test, FILES)), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_python_runs_as_written(path, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for kind, block in BLOCK.findall(path.read_text()):
        if kind == "python":
            exec(block, scope)
    if path.name == "README.md":
        assert capsys.readouterr().out.startswith("(100000, 64) (100000,)")


@pytest.mark.parametrize("where", blocks(""))
def test_commands_are_known(where):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in blocks("")[where].replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line.partition(">")[0], comments=True)
        if program == "srun":
            program, *arguments = arguments[arguments.index("sparrow") :]
        if program == "curl":
            assert any("localhost" in argument for argument in arguments), line
        elif program == "make":
            assert set(arguments) <= set(targets), line
        elif Path(program).name in ("pip", "python", "python3"):
            assert arguments[:1] == ["install"] or arguments[:2] == ["-m", "venv"] or not arguments, line
        else:
            assert program == "sparrow", line
            parsed(arguments)  # ends with SystemExit where it does not know an option


def laid_over(base, part):
    """``part`` in the place of what ``base`` has under the same names."""
    if not (isinstance(base, dict) and isinstance(part, dict)) or part.get("name", base.get("name")) != base.get(
        "name"
    ):
        return part
    return {**base, **{key: laid_over(base.get(key), value) for key, value in part.items()}}


@pytest.mark.parametrize("where", blocks("yaml"))
def test_configs_load(where):
    part = yaml.safe_load(blocks("yaml")[where])
    if not {"train", "tasks", "data", "model"} <= part.keys():
        name = part.get("model", {}).get("architecture", {}).get("name")
        whole = BASE if name is None else yaml.safe_load((ROOT / "examples" / f"{name}.yaml").read_text())
        part = laid_over({key: value for key, value in whole.items() if key != "tasks" or "tasks" not in part}, part)
    loaded = config.from_mapping(part)
    assert config.loads(config.dumps(loaded)) == loaded


def test_the_main_config_trains(tmp_path, monkeypatch):
    """All of docs/config.md's first block, on data that has its columns."""
    (text,) = (block for block in blocks("yaml").values() if block.startswith("data:") and "\ntrain:" in block)
    monkeypatch.chdir(tmp_path)
    Path("clicks").mkdir()
    write_clicks(Path("clicks/1.parquet"), 320, 0)
    write_clicks(Path("clicks/2.parquet"), 192, 1)
    write_clicks(Path("evaluate.parquet"), 256, 2)
    Path("genres.txt").write_text("comedy\ndrama\nhorror\n")
    settings = yaml.safe_load(text)
    for feature in settings["data"]["features"]:  # the same tables, smaller
        feature.update({key: 1000 for key in ("hash_bucket_size", "num_buckets") if key in feature})
    trained = runs.train(config.from_mapping(settings, overrides=["train.batch_size=64", "train.epochs=1"]))
    assert trained.steps == 4
    assert 0 < trained.results["auc"] < 1
    assert np.isfinite(trained.results["loss"])


def write_clicks(path, rows, seed):
    rng = np.random.default_rng(seed)

    def words(names, least):
        return ["|".join(rng.choice(names, rng.integers(least, 3), replace=False)) for _ in range(rows)]

    seen = rng.integers(0, 4, rows)
    columns = {
        "user": [f"u{i}" for i in rng.integers(0, 40, rows)],
        "item": rng.integers(0, 1000, rows),
        "shop": [f"s{i}" for i in rng.integers(0, 5, rows)],
        "genres": words(["comedy", "drama", "horror"], 0),
        "tags": words(["new:0.5", "old:2", "blue:1"], 1),
        "seen": [rng.integers(0, 1000, n).tolist() for n in seen],
        "price": rng.gamma(2.0, 5.0, rows),
        "age": rng.integers(10, 80, rows),
        "rating": rng.integers(1, 6, rows),
        "weight": rng.uniform(0.5, 2.0, rows),
    }
    pq.write_table(pa.table(columns), path)


def test_every_rule_is_in_the_table():
    listed = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "guides" / "rules.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(rule.__name__ for rule in sp.rules.SHIPPED)


def test_the_page_of_configs_names_every_model_and_loss():
    """Names of the schema: the registries also hold what other tests have added."""
    forms = json.loads((ROOT / "sparrow" / "config" / "schema.json").read_text())["$defs"]
    records = [form for kind in ("model", "loss") for form in forms[kind]["anyOf"] if "properties" in form]
    shipped = {record["properties"]["name"]["const"] for record in records}
    assert len(shipped) > 30
    assert shipped <= set(re.findall(r"\w+", (ROOT / "docs" / "config.md").read_text()))


def test_the_errors_of_troubleshooting_are_raised_or_logged():
    """The longest part of each quoted text without names, numbers and hints is in the code."""
    code = " ".join(path.read_text() for path in (ROOT / "sparrow").rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # strings over several lines
    page = (ROOT / "docs" / "guides" / "troubleshooting.md").read_text()
    texts = [text for cell in re.findall(r"(?m)^\| (.*?) \|", page) for text in re.findall(r"`([^`]+)`", cell)]
    assert len(texts) > 30
    for text in texts:
        parts = re.split(r"'[^']*'|[\w.]+_\w+|\w*\d\w*%?(?: GB)?|[:;] |did you mean|\.\.\.| nan$", text)
        part = max(parts, key=len).strip(" ,?")
        assert part in code or part == "Buffer has been deleted or donated", text  # the last is JAX's


def test_every_variable_of_ours_is_in_the_table():
    read = {
        name
        for path in (ROOT / "sparrow").rglob("*.py")
        for name in re.findall(r"\"(SPARROW_[A-Z_]+)\"", path.read_text())
    }
    listed = re.findall(r"^\| `(SPARROW_\w+)` \|", (ROOT / "docs/guides/environment.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(read)


@pytest.mark.slow
def test_the_block_of_many_devices_runs_on_eight():
    """In a process of its own, with eight virtual devices."""
    text = (ROOT / "docs" / "tutorials" / "many_devices.md").read_text()
    (block,) = (block for kind, block in BLOCK.findall(text) if kind == "py")
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", block], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "over 8 devices" in done.stdout


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_names_in_the_text_exist(path):
    """Each `sp.name` and `sparrow.name` in the text, outside of blocks, can be imported."""
    for name in re.findall(r"`(?:sp|sparrow)\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)", BLOCK.sub("", path.read_text())):
        assert pkgutil.resolve_name(f"sparrow.{name}") is not None
