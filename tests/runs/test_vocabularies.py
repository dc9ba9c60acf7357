"""A run owns its vocabularies: a file that is rewritten changes nothing, or is refused by name."""

import io
import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.checkpoint import CheckpointError
from sparrow.config import ConfigError
from sparrow.runs.saved.starting import started
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

WORDS = [f"word{i}" for i in range(12)]
ROWS = 600


def config(folder, *overrides):
    """One id from a file of words, one from a list in the config."""
    source = {"name": "parquet", "path": str(folder / "rows.parquet")}
    features = [
        {"kind": "id", "name": "item", "vocabulary": str(folder / "item.txt"), "embedding_dim": 4},
        {"kind": "id", "name": "color", "vocabulary": ["red", "green", "blue"], "embedding_dim": 4},
    ]
    return case(
        "train.batch_size=100",
        "train.steps=12",
        "train.checkpoint={every_steps: 6}",
        *overrides,
        data={"train": source, "evaluate": source, "features": features},
        model={
            "architecture": {"name": "deepfm", "deep": {"hidden_units": [8]}},
            "groups": {"wide": ["item", "color"], "deep": ["item", "color"]},
        },
    )


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A run, and the loss of its last evaluation."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "item.txt").write_text("\n".join(WORDS) + "\n")
    rng = np.random.default_rng(0)
    items = rng.integers(0, len(WORDS), ROWS)
    label = (items % 2).astype(np.float32)  # the order of the words is all that counts
    columns = {"item": [WORDS[i] for i in items], "color": rng.choice(["red", "green", "blue"], ROWS), "label": label}
    pq.write_table(pa.table(columns), folder / "rows.parquet")
    trained = runs.train(config(folder), folder / "run", stream=io.StringIO())
    return folder, trained


@pytest.fixture
def rewritten(original, tmp_path):
    """The same run elsewhere, after its file of words was rewritten in another order."""
    folder, trained = original
    shutil.copytree(folder, tmp_path / "moved")
    text = (folder / "item.txt").read_text()
    (folder / "item.txt").write_text("\n".join(WORDS[::-1]) + "\n")
    yield folder, tmp_path / "moved" / "run", trained
    (folder / "item.txt").write_text(text)


def test_the_copy_is_used(rewritten):
    folder, run, trained = rewritten
    said = []
    program, state = runs.load(run, log=said.append)
    (line,) = said
    assert f"{folder / 'item.txt'}: holds other words than the run was trained with; the run's copy is used" in line
    assert runs.Evaluator(program)(state) == trained.results
    saved = runs.saved_config(run)
    assert saved.data.features[0].words.words == tuple(WORDS)
    assert str(folder / "item.txt") in (run / "config.yaml").read_text()  # what the user wrote, for people


def test_resuming_goes_on_with_the_copy(rewritten):
    folder, run, trained = rewritten
    shutil.rmtree(run / "checkpoints" / "12")
    stream = io.StringIO()
    again = runs.train(config(folder), run, resume=True, stream=stream)
    assert "holds other words than the run was trained with; the run's copy is used" in stream.getvalue()
    assert "changed:" not in stream.getvalue()
    assert_same_bits(trained.state, again.state)
    assert str(folder / "item.txt") in json.loads((run / "checkpoints" / "12" / "about.json").read_text())["config"]


def test_other_words_are_refused_by_name(original, tmp_path):
    folder, _ = original
    (tmp_path / "other.txt").write_text("\n".join(WORDS[::-1]) + "\n")
    same = tmp_path / "same.txt"
    same.write_text("\n".join(WORDS))
    for override in (
        f"data.features[0].vocabulary={tmp_path / 'other.txt'}",
        "data.features[1].vocabulary=[blue, green, red]",
    ):
        with pytest.raises(ConfigError, match=r"data.features\[.\].vocabulary: holds other words than the run was"):
            runs.load(folder / "run", config(folder, override))
        with pytest.raises(ConfigError, match=r"train\.start_from"):
            runs.train(config(folder, override), folder / "run", resume=True, stream=io.StringIO())
    program, _ = runs.load(folder / "run", config(folder, f"data.features[0].vocabulary={same}"), log=pytest.fail)
    assert program.assembly.features[0].words.words == tuple(WORDS)


def test_starting_with_other_words(original, tmp_path):
    """Known words take their rows along, in the wide table too; new ones start as they would without the other run."""
    folder, _ = original
    (tmp_path / "other.txt").write_text("\n".join(["new", *WORDS[:0:-1]]) + "\n")
    other = f"data.features[0].vocabulary={tmp_path / 'other.txt'}"
    start = f"train.start_from={{folder: {folder / 'run'}}}"
    chosen = config(folder, other, start)
    program, lines = runs.Program.of(chosen), []
    state, fresh = started(program, chosen.train.start_from, lines.append), program.init()
    old_program, old = runs.load(folder / "run")
    for table in [name for name in program.embedder.tables if name.startswith("item")]:
        here = program.embedder.table(state.optimizer.embedding, table)
        before = old_program.embedder.table(old.optimizer.embedding, table)
        assert_same_bits(here[1 : len(WORDS)], before[len(WORDS) - 1 : 0 : -1])
        assert_same_bits(here[len(WORDS) :], before[len(WORDS) :])  # unknown words
        assert_same_bits(here[0], program.embedder.table(fresh.optimizer.embedding, table)[0])
    assert any("1 start fresh" in line for line in lines)


def test_starting_with_words_that_are_all_new(original, tmp_path):
    folder, _ = original
    (tmp_path / "other.txt").write_text("\n".join(f"new{i}" for i in range(len(WORDS))) + "\n")
    other = (f"data.features[0].vocabulary={tmp_path / 'other.txt'}", "data.features[0].unknown=empty")
    start = f"train.start_from={{folder: {folder / 'run'}}}"
    with pytest.raises(ConfigError, match="table 'item'"):
        runs.train(config(folder, *other, start), stream=io.StringIO())
    skip = f"train.start_from={{folder: {folder / 'run'}, skip: ['item.*']}}"
    runs.train(config(folder, *other, skip, "train.steps=1"), stream=io.StringIO())


def test_a_damaged_copy(original, tmp_path):
    folder, _ = original
    shutil.copytree(folder / "run", tmp_path / "run")
    (copy,) = (tmp_path / "run" / "vocabularies").iterdir()
    copy.write_text("word1\n")
    said = []
    program, _ = runs.load(tmp_path / "run", log=said.append)
    assert program.assembly.features[0].words.words == tuple(WORDS)
    assert "is missing or damaged" in said[0]
    text = (folder / "item.txt").read_text()
    (folder / "item.txt").unlink()
    with pytest.raises(CheckpointError, match="restore one of them"):
        runs.load(tmp_path / "run")
    (folder / "item.txt").write_text(text)
