"""Runs whose tables have dynamic vocabularies: the same bits however they are fed, stopped and resumed."""

import io

import jax
import numpy as np
import pytest

from sparrow import cli, runs
from sparrow.checkpoint import ids_of as ids_of_checkpoint
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


def held_of(trained, table):
    return trained.program.embedder.held(trained.state.optimizer.embedding, table)


def ids_of(trained, table):
    return trained.program.embedder.ids(trained.state.optimizer.embedding, table).ids


def assert_same_state(a, b):
    """All but the order of free places that were never used, and the index of the ids."""
    for one, other in ((a, b), (b, a)):
        for stack, held in one.ids.items():
            for name in ("ids", "last", "counts", "pools", "totals"):
                np.testing.assert_array_equal(getattr(held, name), getattr(other.ids[stack], name))
    for x, y in zip(jax.tree.leaves((a.tables, a.slots)), jax.tree.leaves((b.tables, b.slots)), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, runs.train(growing("train.steps=12"), folder, stream=io.StringIO())


def test_rows_come_and_go(undisturbed):
    held = held_of(undisturbed[1], "id_0")
    assert held.used == held.rows == 59
    assert held.evicted
    assert held.waiting
    assert held_of(undisturbed[1], "id_1").evicted


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param(("data.ahead=0",), marks=pytest.mark.slow),
        ("data.ahead=5", "data.threads=3", "evaluate.every_steps=5"),
    ],
)
def test_resumed_runs_have_the_same_bits_and_ids(undisturbed, tmp_path, overrides):
    """However far ahead batches are made, and whatever looks at the ids between two steps."""
    folder, whole = undisturbed
    runs.train(growing(*overrides, "train.steps=7"), tmp_path, stream=io.StringIO())
    resumed = runs.train(growing(*overrides, "train.steps=12"), tmp_path, resume=True, stream=io.StringIO())
    assert_same_state(whole.state.optimizer.embedding, resumed.state.optimizer.embedding)
    ids = [
        {name: array for name, array in victim.everything(path)[2].items() if name.startswith("ids/")}
        for path in (folder, tmp_path)
    ]
    same(*ids)
    assert len(ids[0]) > 10


def test_loading_evaluates_as_the_run_did(undisturbed):
    folder, whole = undisturbed
    program, state = runs.load(folder)
    assert runs.Evaluator(program)(state) == whole.results


@pytest.mark.slow
def test_tables_may_grow_and_shrink_as_far_as_ids_fit(undisturbed, tmp_path):
    runs.train(growing("train.steps=4"), tmp_path, stream=io.StringIO())
    stream = io.StringIO()
    grown = runs.train(growing("train.steps=8", rows=100), tmp_path, resume=True, stream=stream)
    assert "table 'id_0' had 60 rows, and has 100 here" in stream.getvalue()
    assert held_of(grown, "id_0").used > 59
    with pytest.raises(ConfigError, match=r"table 'id_0_wide' was saved with \d+ ids in 100 rows"):
        runs.train(growing("train.steps=9"), tmp_path, resume=True, overwrite=False, stream=io.StringIO())


def test_starting_from_another_run_takes_its_ids_along(undisturbed):
    folder, whole = undisturbed
    start = f"train.start_from={{folder: {folder}}}"
    begun = runs.train(growing("train.steps=1", start, rows=90), stream=io.StringIO())
    assert set(ids_of(whole, "id_0").tolist()) <= set(ids_of(begun, "id_0").tolist())
    with pytest.raises(ConfigError, match="table 'id_0_wide' was saved with 59 ids in 60 rows; 59 of them do not fit"):
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
    with pytest.raises(
        DataError, match=r"step 1: table 'id_0(_wide)?': one step needs \d+ rows for its ids, and there are 19"
    ):
        runs.train(growing("train.steps=4", "data.features[0].dynamic.admit=1", rows=20), stream=io.StringIO())


def test_a_step_that_is_not_finite_leaves_what_was_trained(tmp_path, monkeypatch):
    """Its ids stay counted, and rows of new ones at their start; nothing else changes."""
    before = runs.train(growing("train.steps=3"), tmp_path, stream=io.StringIO())
    real = runs.Program.loss

    def loss(self, params, acts, rest, feed):
        total, others = real(self, params, acts, rest, feed)
        return total / np.float32(0), others

    monkeypatch.setattr(runs.Program, "loss", loss)
    with pytest.raises(runs.RunError):
        runs.train(growing("train.steps=9"), tmp_path, resume=True, stream=io.StringIO())
    monkeypatch.undo()
    _, after = runs.load(tmp_path)
    assert int(after.optimizer.step) == 3
    jax.tree.map(np.testing.assert_array_equal, before.state.optimizer.params, after.optimizer.params)
    runs.train(growing("train.steps=5"), tmp_path, resume=True, stream=io.StringIO())


@pytest.mark.slow
@pytest.mark.parametrize(
    "overrides",
    [
        ("train.steps_per_call=3", "train.accumulate=1"),
        ("train.pipeline=stale",),
        ("train.precision=float16", "train.loss_scale={init_scale: 1.0e+9}", "train.steps_per_call=2"),
    ],
    ids=["calls", "stale", "skipped"],
)
def test_other_ways_to_make_steps(tmp_path, overrides):
    """Resumed runs have the bits of one that never stopped."""
    whole = runs.train(growing("train.steps=6", *overrides), stream=io.StringIO())
    runs.train(growing("train.steps=3", *overrides), tmp_path, stream=io.StringIO())
    resumed = runs.train(growing("train.steps=6", *overrides), tmp_path, resume=True, stream=io.StringIO())
    assert_same_state(whole.state.optimizer.embedding, resumed.state.optimizer.embedding)


def test_the_ids_of_a_run_are_shown(undisturbed, capsys):
    folder, whole = undisturbed
    assert cli.main(["vocab", str(folder), "id_1"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    held = held_of(whole, "id_1")
    assert first.startswith(f"id_1: {held.used} of 200 rows used, {held.admitted} admitted, {held.evicted} evicted")
    known = {str(key) for key in ids_of(whole, "id_1").view(np.int64)}
    counts = [int(line.split()[1].replace(",", "")) for line in others]
    assert {line.split()[0] for line in others} <= known
    assert len(others) == 10
    assert counts == sorted(counts, reverse=True)
    assert first.removeprefix("id_1: ") in (folder / "report.html").read_text()
    assert cli.main(["vocab", str(folder), "id_2"]) == 2
    assert "unknown table 'id_2': did you mean" in capsys.readouterr().err


def test_the_format_before_is_refused_by_its_name():
    held = {f"ids/id_0/{name}": np.zeros(2, np.int64) for name in ("ids", "last", "waiting", "numbers")}
    with pytest.raises(ValueError, match=r"saved in the format of version 0\.1, which is not read"):
        ids_of_checkpoint(held, "id_0")
    with pytest.raises(ValueError, match="were not saved; it had no dynamic vocabulary"):
        ids_of_checkpoint({}, "id_0")


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
