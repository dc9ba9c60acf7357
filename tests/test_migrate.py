"""The pages of docs/migrate/: each peer's program is whole and starts from the data that Sparrow's program starts from.

`tests/test_docs.py` runs our side, with the peer's numbers; `benchmarks/migrate.py` runs both.
"""

import ast
import builtins
import re

import pytest
import yaml

import sparrow as sp
from benchmarks import migrate
from sparrow.cli import main


@pytest.mark.parametrize("page", migrate.PACKAGES)
def test_both_programs_are_complete(page):
    for program in migrate.programs(page):
        tree = ast.parse(program)
        bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        assert {"losses", "results"} <= bound
        undefined = set(names_read(tree)) - bound - set(names_made(tree)) - set(dir(builtins))
        assert not undefined


def names_read(tree):
    return (node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))


def names_made(tree):
    """Names of imports, functions, classes and arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (name.asname or name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg


def test_the_numbers_on_a_page_are_those_of_the_last_run():
    """Each page names the versions in benchmarks/results/migrate.md."""
    measured = (migrate.ROOT / "benchmarks" / "results" / "migrate.md").read_text()
    for page in migrate.PACKAGES:
        text = (migrate.ROOT / "docs" / "migrate" / f"{page}.md").read_text()
        (title,) = (title for kind, title, _ in migrate.BLOCK.findall(text) if kind == "py")
        assert f"| {page} | " in measured
        version = title.split()[1]
        assert f" {version}" in next(line for line in measured.splitlines() if line.startswith(f"| {page} | "))


@pytest.fixture
def torcheasyrec(tmp_path, monkeypatch):
    """The blocks of the page by title; its config and its data are in the folder."""
    monkeypatch.chdir(tmp_path)
    text = (migrate.ROOT / "docs" / "migrate" / "torcheasyrec.md").read_text()
    found = dict(re.findall(r"^```\w+ title=\"(.*?)\"\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    (tmp_path / "pipeline.config").write_text(found["pipeline.config, for both"])
    exec(found["Data for both"], {})
    return found


def test_an_import_gives_the_config_on_the_page(torcheasyrec, capsys):
    main(["import-config", "pipeline.config"])
    assert yaml.safe_load(capsys.readouterr().out) == yaml.safe_load(
        torcheasyrec["The output of sparrow import-config"]
    )


@pytest.mark.slow
def test_the_config_on_the_page_reaches_the_auc_of_torcheasyrec(torcheasyrec):
    main(["train", "pipeline.config", "--model-dir", "runs/din"])
    assert sp.runs.load("runs/din").results["auc"] == pytest.approx(0.8486, abs=0.003)
