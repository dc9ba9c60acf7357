"""Runs whose tables have dynamic vocabularies: the same bits however they are fed, stopped and resumed."""

import io

import jax
import numpy as np
import pytest

from sparrow import cli, runs
from sparrow.config import ConfigError
from sparrow.data import DataError, Tables
from sparrow.embedding import mix64
from tests.runs import victim
from tests.runs.cases import NAMES, case

IDS = 2000


def dynamic(name, rows=60, **options):
    return {"kind": "id", "name": name, "embedding_dim": 4, "dynamic": {"rows": rows, **options}}


def growing(*overrides, rows=60):
    clicks = {"name": "clicks", "impressions": 4096, "fields": 3, "ids": IDS, "chunk_rows": 1024}
    features = [
        dynamic(NAMES[0], rows, admit=2, waiting=300),
        dynamic(NAMES[1], 200, evict="lfu", unknown="zeros", expire_steps=6),
        {"kind": "id", "name": NAMES[2], "num_buckets": IDS, "embedding_dim": 4},
    ]
    data = {"train": clicks, "evaluate": {**clicks, "start": 1000}, "shuffle_rows": 2048, "features": features}
    fixed = ("train.batch_size=64", "train.accumulate=2", "train.tensorboard=false", "evaluate={steps: 2}")
    return case(*fixed, *overrides, data=data)


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, runs.train(growing("train.steps=12"), folder, stream=io.StringIO())


def test_rows_come_and_go(undisturbed):
    held = undisturbed[1].program.vocabularies.held("id_0")
    assert held.used == held.rows == 59
    assert held.evicted
    assert held.waiting
    assert undisturbed[1].program.vocabularies.held("id_1").evicted


@pytest.mark.parametrize("overrides", [("data.ahead=0",), ("data.ahead=5", "data.threads=3", "evaluate.every_steps=5")])
def test_resumed_runs_have_the_same_bits_and_ids(undisturbed, tmp_path, overrides):
    """However far ahead batches are made, and whatever looks at the ids between two steps."""
    folder, whole = undisturbed
    runs.train(growing(*overrides, "train.steps=7"), tmp_path, stream=io.StringIO())
    resumed = runs.train(growing(*overrides, "train.steps=12"), tmp_path, resume=True, stream=io.StringIO())
    for a, b in zip(jax.tree.leaves(whole.state.optimizer), jax.tree.leaves(resumed.state.optimizer), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    ids = [
        {name: array for name, array in victim.everything(path)[2].items() if name.startswith("extras/ids/")}
        for path in (folder, tmp_path)
    ]
    same(*ids)
    assert len(ids[0]) > 10


def test_loading_evaluates_as_the_run_did(undisturbed):
    folder, whole = undisturbed
    program, state = runs.load(folder)
    assert runs.Evaluator(program)(state) == whole.results


@pytest.mark.slow
def test_tables_may_grow_and_may_not_shrink(undisturbed, tmp_path):
    runs.train(growing("train.steps=4"), tmp_path, stream=io.StringIO())
    stream = io.StringIO()
    grown = runs.train(growing("train.steps=8", rows=100), tmp_path, resume=True, stream=stream)
    assert "table 'id_0' grows from 60 to 100 rows" in stream.getvalue()
    assert grown.program.vocabularies.held("id_0").used > 59
    with pytest.raises(ConfigError, match="table 'id_0_wide' was saved with 100 rows, and has 60 here"):
        runs.train(growing("train.steps=9"), tmp_path, resume=True, overwrite=False, stream=io.StringIO())


def test_starting_from_another_run_takes_its_ids_along(undisturbed):
    folder, whole = undisturbed
    start = f"train.start_from={{folder: {folder}}}"
    begun = runs.train(growing("train.steps=1", start, rows=90), stream=io.StringIO())
    ids = [words.ids("id_0")[:59].tolist() for words in (whole.program.vocabularies, begun.program.vocabularies)]
    assert ids[0] == ids[1]
    with pytest.raises(ConfigError, match="table 'id_0_wide' was saved with 60 rows, and has 50 here"):
        runs.train(growing("train.steps=1", start, rows=50), stream=io.StringIO())
    static = "data.features[0]={kind: id, name: id_0, embedding_dim: 4, num_buckets: 60}"
    with pytest.raises(ConfigError, match="'id_0' of the checkpoint has a dynamic vocabulary, 'id_0' has none"):
        runs.train(growing("train.steps=1", start, static), stream=io.StringIO())


def films(count, raw, seed):
    """Ratings of films by users whose ids are small numbers, or any 64-bit ones."""
    generator, truth = np.random.default_rng(seed), np.random.default_rng(7)
    users, items = generator.zipf(1.3, count) % 400, generator.zipf(1.2, count) % 300
    logits = truth.normal(size=400)[users] + truth.normal(size=300)[items]
    liked = generator.random(count) < 1 / (1 + np.exp(-logits))
    if raw:
        users, items = (mix64(ids.astype(np.uint64)).view(np.int64) for ids in (users, items))
    return Tables({"user": users, "item": items, "label": liked.astype(np.float32)})


def test_equals_a_vocabulary_made_beforehand():
    """Where rows start alike, raw ids train to the very results of numbered ones, whatever rows they get."""
    results = []
    for raw in (False, True):
        size = {"dynamic": {"rows": 512}} if raw else {"num_buckets": 400}
        features = [{"kind": "id", "name": name, "embedding_dim": 4, **size} for name in ("user", "item")]
        names = ["user", "item"]
        model = {
            "architecture": {"name": "deepfm", "deep": {"hidden_units": [8]}},
            "groups": {"wide": names, "deep": names},
            "tables": [{"tables": [".*"], "initializer": {"name": "constant", "value": 0.01}}],
        }
        data = {"train": films(3000, raw, 1), "evaluate": films(1000, raw, 1), "features": features}
        config = case("train.steps=11", data=data, model=model)
        results.append(runs.train(config, stream=io.StringIO()).results)
    assert results[0] == results[1]
    assert results[0]["auc"] > 0.6


def test_a_table_of_a_config_may_have_the_vocabulary():
    """As if each feature had it."""
    clicks = {"name": "clicks", "impressions": 512, "fields": 3, "ids": IDS}
    plain = [{"kind": "id", "name": name, "embedding_dim": 4, "table": "shared"} for name in NAMES]
    words = {"rows": 300, "admit": 2}
    given = {"train": clicks, "features": [{**feature, "dynamic": words} for feature in plain]}
    model = {
        "architecture": {"name": "deepfm", "deep": {"hidden_units": [8]}},
        "groups": {"wide": NAMES, "deep": NAMES},
    }
    tables = [{"tables": ["shared"], "dynamic": words, "dtype": "bfloat16"}, {"tables": ["shared_wide"]}]
    config = case(data={**given, "features": plain}, model={**model, "tables": tables})
    assert config == case(
        data=given, model={**model, "tables": [{"tables": ["shared"], "dtype": "bfloat16"}, tables[1]]}
    )
    with pytest.raises(
        ConfigError, match=r"model.tables\[0\].dynamic: the feature 'id_0' of this table has dynamic of"
    ):
        case(data=given, model={**model, "tables": tables})
    with pytest.raises(ConfigError, match="no id or sequence feature reads one of these tables"):
        case(data=given, model={**model, "tables": [{"tables": ["other"], "dynamic": words}]})


def test_a_step_beyond_capacity_ends_the_run_in_one_line(tmp_path):
    with pytest.raises(DataError, match="table 'id_0_wide': one step needs more rows for its ids than the 19"):
        runs.train(growing("train.steps=4", "data.features[0].dynamic.admit=1", rows=20), stream=io.StringIO())


def test_a_step_that_is_not_finite_leaves_rows_and_ids_as_they_were(tmp_path, monkeypatch):
    """Rows that the failed step gave to new ids are given back."""
    good = tmp_path / "good"
    runs.train(growing("train.steps=3"), good, stream=io.StringIO())
    bad = tmp_path / "bad"
    real = runs.Program.loss

    def loss(self, params, acts, rest, feed):
        total, others = real(self, params, acts, rest, feed)
        return total / np.float32(0), others

    config = growing("train.steps=9", "train.checkpoint={every_steps: 3}")
    runs.train(growing("train.steps=3"), bad, stream=io.StringIO())
    monkeypatch.setattr(runs.Program, "loss", loss)
    with pytest.raises(runs.RunError):
        runs.train(config, bad, resume=True, stream=io.StringIO())
    monkeypatch.undo()
    again = runs.train(growing("train.steps=9"), bad, resume=True, stream=io.StringIO())
    never = runs.train(growing("train.steps=9"), good, resume=True, stream=io.StringIO())
    for a, b in zip(jax.tree.leaves(never.state.optimizer), jax.tree.leaves(again.state.optimizer), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_the_ids_of_a_run_are_shown(undisturbed, capsys):
    folder, whole = undisturbed
    assert cli.main(["vocab", str(folder), "id_1"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    held = whole.program.vocabularies.held("id_1")
    assert first.startswith(f"id_1: {held.used} of 200 rows used, {held.admitted} admitted, {held.evicted} evicted")
    known = {str(key) for key in whole.program.vocabularies.ids("id_1").view(np.int64)}
    counts = [int(line.split()[1].replace(",", "")) for line in others]
    assert {line.split()[0] for line in others} <= known
    assert len(others) == 10
    assert counts == sorted(counts, reverse=True)
    assert first.removeprefix("id_1: ") in (folder / "report.html").read_text()
    assert cli.main(["vocab", str(folder), "id_2"]) == 2
    assert "unknown table 'id_2': did you mean" in capsys.readouterr().err


@pytest.mark.slow
def test_sigkill_at_any_moment(tmp_path):
    """As `test_kills`, with dynamic tables."""
    features = "[{kind: id, name: id_0, embedding_dim: 4, dynamic: {rows: 80, admit: 2}}, " + ", ".join(
        f"{{kind: id, name: {name}, embedding_dim: 4, dynamic: {{rows: 80, expire_steps: 5}}}}" for name in NAMES[1:]
    )
    overrides = (
        "train.steps=60",
        "train.checkpoint={every_steps: 3, keep: 2}",
        f"data.features={features}]",
        f"data.train.ids={IDS}",
        f"data.evaluate.ids={IDS}",
    )
    folder = tmp_path / "undisturbed"
    process = victim.context().Process(target=victim.train, args=(overrides, folder, tmp_path / "cache"))
    process.start()
    process.join(victim.LIMIT)
    assert process.exitcode == 0
    chain = victim.Chain(overrides, tmp_path / "run", folder, tmp_path / "cache", seed=7)
    chain.go(20)
    assert chain.kills == 20
    assert chain.finished
