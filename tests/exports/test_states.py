"""Exports with states: a history is computed once, and candidates and new events follow it."""

import functools

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow import exports, runs, serving
from sparrow.cli import main
from sparrow.config import ConfigError

ITEMS, LENGTH = 30, 40
STU = {"embedding_dim": 8, "num_heads": 2, "hidden_dim": 4, "attention_dim": 4, "scaling_seqlen": LENGTH}


def rows(count, seed=0, longest=LENGTH):
    rng = np.random.default_rng(seed)
    seen = [rng.integers(0, ITEMS, rng.integers(0, longest + 1)).tolist() for _ in range(count)]
    when = [np.sort(rng.integers(0, 10_000, len(own))).astype(float).tolist() for own in seen]
    columns = {"seen": seen, "when": when, "item": rng.integers(0, ITEMS, count), "now": np.full(count, 2e4)}
    return pa.table({**columns, "price": rng.random(count), "click": rng.integers(0, 2, count).astype(float)})


ARCHITECTURES = {
    "dlrm_hstu": (
        {"hstu": {**STU, "num_time_buckets": 6}, "task_towers": [{"task": "click"}]},
        {
            **{"uih": ["seen"], "uih_timestamp": ["when"]},
            **{"candidate": ["item", "price"], "candidate_timestamp": ["now"]},
        },
    ),
    "hstu_ranker": (
        {"channels": [{"stu": {**STU, "num_position_buckets": 20}}], "task_towers": [{"task": "click"}]},
        {"uih": ["seen"], "candidate": ["item", "price"]},
    ),
    "sasrec": (
        {"item_tower": {"input": "item"}, "max_length": LENGTH, "num_layers": 2, "dropout_ratio": 0.0},
        {"history": ["seen"], "item": ["item"]},
    ),
    "deepfm": ({"deep": {"hidden_units": [4]}}, {"wide": ["item"], "deep": ["item"], "fm": ["item"]}),
}


def described(folder, name, **stu):
    options, groups = ARCHITECTURES[name]
    read = {feature for names in groups.values() for feature in names}
    items = {"num_buckets": ITEMS, "embedding_dim": 8, "table": "items"}
    features = [
        {"kind": "sequence", "name": "seen", "max_length": LENGTH, **items},
        {"kind": "raw_sequence", "name": "when", "max_length": LENGTH},
        {"kind": "id", "name": "item", **items},
        {"kind": "raw", "name": "price"},
        {"kind": "raw", "name": "now"},
    ]
    if stu:
        options = {**options, "channels": [{"stu": {**options["channels"][0]["stu"], **stu}}]}
    loss = "in_batch_softmax" if name == "sasrec" else "binary_cross_entropy"
    label = {} if name == "sasrec" else {"label": "click"}
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.5},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.05},
                **{"batch_size": 32, "steps": 8},
            },
            "tasks": {"click": {**label, "losses": [loss]}},
            "data": {
                "train": {"name": "parquet", "path": str(folder / "train.parquet")},
                "features": [feature for feature in features if feature["name"] in read],
            },
            "model": {"architecture": {"name": name, **options}, "groups": groups},
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("states")
    pq.write_table(rows(256), made / "train.parquet")
    return made


@functools.cache
def exported(folder, name):
    runs.train(described(folder, name)).export(folder / name, states=True)
    return serving.load(folder / name)


@pytest.mark.parametrize("name", [pytest.param("dlrm_hstu", marks=pytest.mark.slow), "hstu_ranker"])
def test_scores_are_those_of_the_complete_histories(folder, name):
    model, users = exported(folder, name), rows(5, seed=1)
    assert model.towers == ()
    rng = np.random.default_rng(2)
    of = np.repeat([3, 0, 4, 1, 2], [70, 1, 5, 3, 2])  # more than are scored at a time; in any order
    rng.shuffle(of)
    pairs = users.take(of)
    for column, values in (("item", rng.integers(0, ITEMS, len(of))), ("price", rng.random(len(of)))):
        pairs = pairs.set_column(pairs.column_names.index(column), column, pa.array(values))
    expected = model.predict(pairs)["click"]
    assert np.ptp(expected) > 1e-3
    states = model.histories.states(users)
    named = model.histories.scoring.columns
    assert "seen" not in named  # a candidate's score does not read its history
    made = model.histories.score(states, pairs.select(named), of)["click"]
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
    by_user = model.predict(pairs.append_column("user", pa.array(of)), user="user")["click"]
    np.testing.assert_allclose(by_user, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [pytest.param("dlrm_hstu", marks=pytest.mark.slow), "hstu_ranker", "sasrec"])
def test_appended_events(folder, name):
    model, users = exported(folder, name), rows(6, seed=3)
    histories = model.histories
    complete = histories.states(users)
    lists = {column: users[column].to_pylist() for column in ("seen", "when")}
    cut = [0, 1, 5, 30, 2, 7]
    old, new = (
        {column: [own[part(at)] for own, at in zip(values, cut, strict=True)] for column, values in lists.items()}
        for part in (lambda at: slice(at), lambda at: slice(at, None))
    )
    states = histories.append(histories.states(pa.table(old)), pa.table(new))
    np.testing.assert_array_equal(states.left, complete.left)
    np.testing.assert_allclose(states.values, complete.values, rtol=2e-5, atol=2e-5)
    if name == "sasrec":
        there = [row for row, own in enumerate(lists["seen"]) if own]
        expected = model.vectors("user", users)
        np.testing.assert_allclose(states.vectors[there], expected[there], rtol=2e-5, atol=2e-5)
        with pytest.raises(ValueError, match="two towers: its states hold the users' vectors"):
            histories.score(states, users)
    else:
        expected = model.predict(users)["click"]
        np.testing.assert_allclose(histories.score(states, users)["click"], expected, rtol=1e-5, atol=1e-6)
    longer = {column: [[own[0] if own else 1] * LENGTH for own in values] for column, values in lists.items()}
    with pytest.raises(ValueError, match="has 40 new events and its state has space for"):
        histories.append(complete, pa.table(longer))


def test_files_of_rows_by_user(folder, tmp_path, capsys, monkeypatch):
    users = rows(7, seed=4)
    exported(folder, "hstu_ranker")
    of = np.random.default_rng(5).integers(0, 7, 90)  # in any order, over two chunks
    pairs = users.take(of).append_column("user", pa.array([f"u{own}" for own in of]))
    pairs = pairs.set_column(pairs.column_names.index("item"), "item", pa.array(np.arange(90) % ITEMS))
    pq.write_table(pairs, tmp_path / "rows.parquet", row_group_size=50)
    command = ["predict", str(folder / "hstu_ranker"), str(tmp_path / "rows.parquet")]
    assert main([*command, str(tmp_path / "plain"), "--columns", "item"]) == 0
    computed = []
    states = serving.histories.Histories.states
    monkeypatch.setattr(
        serving.histories.Histories, "states", lambda self, own: computed.append(own.num_rows) or states(self, own)
    )
    named = ["--columns", "item", "--user", "user", "--batch-size", "3"]
    assert main([*command, str(tmp_path / "by_user"), *named]) == 0
    chunks = [len(set(of[:50])), len(set(of[50:]))]
    assert (sum(computed), max(computed)) == (sum(chunks), 3)  # each history once in a chunk, three at a time
    plain, by_user = (pq.read_table(tmp_path / name) for name in ("plain", "by_user"))
    assert by_user["item"].equals(plain["item"])
    assert by_user.schema == plain.schema
    np.testing.assert_allclose(by_user["click"], plain["click"], rtol=1e-5, atol=1e-6)
    pq.write_table(pairs.slice(0, 0), tmp_path / "rows.parquet")
    assert main([*command, str(tmp_path / "none"), "--user", "user"]) == 0
    assert pq.read_table(tmp_path / "none").num_rows == 0
    for wrong, why in (
        ("use", "the user is no column of the source"),
        ("user", "write it with sparrow export --states"),
    ):
        if wrong == "user":
            runs.train(described(folder, "hstu_ranker")).export(tmp_path / "stateless")
            command[1] = str(tmp_path / "stateless")
        capsys.readouterr()
        assert main([*command, str(tmp_path / "wrong"), "--user", wrong]) == 2
        assert why in capsys.readouterr().err
    assert not (tmp_path / "wrong").exists()


def test_models_without_states_are_refused_by_name(folder):
    run = runs.train(described(folder, "deepfm"))
    with pytest.raises(ConfigError, match="DeepFM keeps no states; leave --states out"):
        run.export(folder / "none", states=True)
    assert not (folder / "none").exists()
    run.export(folder / "plain", overwrite=True)
    with pytest.raises(ValueError, match="write it with sparrow export --states"):
        _ = serving.load(folder / "plain").histories


@pytest.mark.slow
def test_scores_of_several_candidates_in_a_row(tmp_path):
    from tests.runs import test_several_candidates as several

    for name in ("train", "test"):
        pq.write_table(several.rows(128), tmp_path / f"{name}.parquet")
    run = runs.train(several.described(tmp_path))
    exports.export(run.program, run.state, tmp_path / "export", states=True)
    model, users = serving.load(tmp_path / "export"), several.rows(9, seed=2)
    expected = model.predict(users)
    states = model.histories.states(users)
    made = model.histories.score(states, users.select(["shown"]))
    for task, lists in expected.items():
        for a, b in zip(lists, made[task], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
