"""Several candidates of an example, from a config to a service: labels are lists, and each candidate counts once."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import config as configs
from sparrow import exports, metrics, plan, runs, serving
from sparrow.data import DataError

ITEMS, LENGTH, MOST = 12, 4, 3


def rows(count, seed=0, as_text=False):
    """A candidate is clicked where the history holds it. Bit 2 of its actions is its click; some requests have none."""
    rng = np.random.default_rng(seed)
    seen = [rng.choice(ITEMS, rng.integers(1, LENGTH + 1), replace=False).tolist() for _ in range(count)]
    shown = [rng.choice(ITEMS, rng.integers(0, MOST + 1), replace=False).tolist() for _ in range(count)]
    for history, candidates in zip(seen, shown, strict=True):
        for place in range(len(candidates)):
            if rng.random() < 0.4 and history[0] not in candidates:
                candidates[place] = history[0]
    click = [[int(item in h) for item in c] for h, c in zip(seen, shown, strict=True)]
    actions = [[4 * clicked + int(rng.integers(0, 4)) for clicked in row] for row in click]
    watched = [
        [float(clicked * 3 + item / ITEMS) for clicked, item in zip(a, c, strict=True)]
        for a, c in zip(click, shown, strict=True)
    ]
    user = rng.integers(0, 5, count)
    if as_text:
        seen, shown, click = (["|".join(map(str, row)) for row in column] for column in (seen, shown, click))
    columns = {"seen": seen, "shown": shown, "click": click, "actions": actions, "watched": watched, "user": user}
    return pa.table({**columns, "weight": rng.random(count).astype(np.float32)})


def described(folder, tasks=None, separator=None, labels=(), **train):
    items = {"num_buckets": ITEMS, "embedding_dim": 8, "table": "items"}
    items |= {} if separator is None else {"separator": separator}
    tasks = tasks or {
        "click": {"label": "click", "losses": ["binary_cross_entropy"], "metrics": ["auc", "log_loss"]},
        "watch": {"label": "watched", "losses": ["l2"], "metrics": ["mae"]},
    }
    towers = [
        {"task": name, "num_classes": 2 if task["losses"][0] not in ("binary_cross_entropy", "l2") else 1}
        for name, task in tasks.items()
    ]
    stu = {"embedding_dim": 8, "num_heads": 2, "hidden_dim": 4, "attention_dim": 4, "scaling_seqlen": LENGTH}
    return configs.from_mapping(
        {
            "train": {
                "sparse_optimizer": {"name": "adagrad", "learning_rate": 0.2},
                "dense_optimizer": {"optimizer": "adam", "learning_rate": 0.02},
                "batch_size": 64,
                "steps": 2,
                **train,
            },
            "tasks": tasks,
            "data": {
                "train": {"name": "parquet", "path": str(folder / "train.parquet")},
                "evaluate": {"name": "parquet", "path": str(folder / "test.parquet")},
                "labels": list(labels),
                "features": [
                    {"kind": "sequence", "name": "seen", "max_length": LENGTH, **items},
                    {"kind": "sequence", "name": "shown", "max_length": MOST, **items},
                ],
            },
            "model": {
                "architecture": {"name": "dlrm_hstu", "hstu": stu, "mlp": {"hidden_units": [8]}, "task_towers": towers},
                "groups": {"uih": ["seen"], "candidate": ["shown"]},
            },
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    for file, count, seed in (("train", 1024, 0), ("test", 50, 1)):
        pq.write_table(rows(count, seed), folder / f"{file}.parquet")
    config = described(folder, steps=120)
    assert configs.loads(configs.dumps(config)) == config
    return folder, runs.train(config, folder / "run", stream=io.StringIO())


def flat(column):
    return np.concatenate([np.asarray(row, np.float64) for row in column])


def test_learns_from_labels_in_lists(trained):
    _, run = trained
    assert run.results["click/auc"] > 0.9
    assert run.results["watch/mae"] < 1.0


def test_loss_and_metrics_are_of_all_candidates_alike(trained):
    folder, run = trained
    test = rows(50, 1).to_pydict()
    made = run.predict(str(folder / "test.parquet"))
    assert [len(row) for row in made["click"]] == [len(row) for row in test["shown"]]
    p, y = flat(made["click"]), flat(test["click"])
    watch, watched = flat(made["watch"]), flat(test["watched"])
    log_loss = -np.mean(y * np.log(p) + (1 - y) * np.log(1 - p))
    results = run.evaluate()
    np.testing.assert_allclose(results["click/log_loss"], log_loss, rtol=1e-5)
    np.testing.assert_allclose(results["watch/mae"], np.abs(watch - watched).mean(), rtol=1e-5)
    np.testing.assert_allclose(results["loss"], log_loss + np.mean((watch - watched) ** 2), rtol=1e-5)
    auc = metrics.AUC()
    state = auc.update(auc.init(), p, y)
    np.testing.assert_allclose(results["click/auc"], float(auc.compute(state)), atol=1e-6)


def test_files_exports_and_services_have_lists_of_the_same_numbers(trained):
    folder, run = trained
    expected = run.predict(str(folder / "test.parquet"))
    runs.predict(*run, str(folder / "test.parquet"), folder / "predicted.parquet", columns=["user"])
    written = pq.read_table(folder / "predicted.parquet")
    assert written.schema.field("click").type == pa.list_(pa.float32())
    np.testing.assert_array_equal(flat(written["click"].to_pylist()), flat(expected["click"]))
    exports.export(*run, folder / "export")
    model = serving.load(folder / "export")
    table = pq.read_table(folder / "test.parquet")
    served = model.predict(table, batch_size=16)
    assert [len(row) for row in served["click"]] == [len(row) for row in expected["click"]]
    np.testing.assert_allclose(flat(served["click"]), flat(expected["click"]), rtol=1e-4, atol=1e-5)
    assert model.signature["predict"]["outputs"]["click"]["meaning"] == "probability of each candidate"
    serving.predict(model, str(folder / "test.parquet"), folder / "served.parquet")
    assert pq.read_table(folder / "served.parquet").schema.field("watch").type == pa.list_(pa.float32())


@pytest.mark.slow
def test_the_server_answers_with_lists(trained):
    from sparrow.server.answering import Answerer
    from sparrow.server.known_users import KnownUsers
    from sparrow.server.limits import Limits
    from sparrow.server.requests import Request, Served, read

    folder, run = trained
    exports.export(*run, folder / "served")
    model, known = serving.load(folder / "served"), KnownUsers(seconds=0, most=0, most_bytes=0)
    answer = Answerer(16, lambda *counted: None, known)
    body = json.dumps({"rows": [{"seen": [1, 2], "shown": [1, 2, 3]}, {"seen": [4], "shown": [5]}]}).encode()
    asked = [Request("predict", body, "json", form) for form in ("json", "arrow")]
    in_json, in_arrow = answer([read(Served(model), request, Limits(), known) for request in asked])
    lists = json.loads(in_json.body)["predictions"]["click"]
    assert [len(row) for row in lists] == [3, 1]
    assert pa.ipc.open_stream(in_arrow.body).read_all()["click"].to_pylist() == lists


@pytest.mark.slow
def test_a_plan_reads_them(trained):
    folder, _ = trained
    assert plan(described(folder)) is not None


@pytest.mark.slow
def test_sessions_groups_weights_and_bits(tmp_path):
    """Keys and weights are of the example, bits of each candidate's number."""
    for file, count, seed in (("train", 128, 0), ("test", 40, 1)):
        pq.write_table(rows(count, seed), tmp_path / f"{file}.parquet")
    grouped = {"name": "grouped_auc", "group_by": "user"}
    tasks = {
        "bits": {
            "label": "third_bit",
            "losses": ["binary_cross_entropy"],
            "metrics": [grouped],
            "sample_weight": "weight",
        },
        "session": {
            "label": "third_bit",
            "losses": [{"name": "jrc", "session_name": "user"}],
            "metrics": ["exact_auc"],
        },
    }
    labels = [{"name": "third_bit", "column": "actions", "bitmask": 4}]
    run = runs.train(described(tmp_path, tasks, labels=labels), tmp_path / "run", stream=io.StringIO())
    test = rows(40, 1).to_pydict()
    made, y = run.predict(str(tmp_path / "test.parquet")), flat(test["click"])
    counts = [len(row) for row in test["shown"]]
    users, weights = np.repeat(test["user"], counts), np.repeat(test["weight"], counts)
    metric = metrics.GroupedAUC()
    state = metric.update(metric.init(), flat(made["bits"]), y, weights=weights, groups=users)
    results = run.evaluate()
    np.testing.assert_allclose(results["bits/grouped_auc(user)"], metric.compute(state), rtol=1e-6)
    exact = metrics.ExactAUC()
    state = exact.update(exact.init(), flat(made["session"]), y)
    np.testing.assert_allclose(results["session/exact_auc"], exact.compute(state), rtol=1e-6)
    assert np.isfinite(results["loss"])


@pytest.mark.slow
def test_texts_are_cut_as_the_candidates_are(tmp_path):
    for file, count, seed in (("train", 64, 0), ("test", 20, 1)):
        pq.write_table(rows(count, seed, as_text=True), tmp_path / f"{file}.parquet")
    tasks = {"click": {"label": "click", "losses": ["binary_cross_entropy"], "metrics": ["auc"]}}
    run = runs.train(described(tmp_path, tasks, separator="|"), tmp_path / "run", stream=io.StringIO())
    counts = [len(row.split("|")) if row else 0 for row in rows(20, 1, as_text=True).to_pydict()["shown"]]
    assert [len(row) for row in run.predict(str(tmp_path / "test.parquet"))["click"]] == counts


def changed(table, column, values):
    return table.set_column(table.column_names.index(column), column, pa.array(values))


@pytest.mark.parametrize(
    ("column", "change", "message"),
    [
        ("click", lambda rows: [*rows[:-1], [1, 0, 1, 0, 1]], "'shown' and 'click' must have one length"),
        ("click", lambda rows: [*rows[:-1], [2] * len(rows[-1])], "takes numbers from 0 to 1 as labels, got 2"),
        ("click", lambda rows: [*rows[:-1], [None, 1]], "label 'click' has no value"),
        ("click", lambda rows: [0.5] * len(rows), "needs a list of numbers, one for each candidate"),
    ],
    ids=["length", "range", "missing", "single"],
)
def test_labels_that_do_not_fit(column, change, message, tmp_path):
    table = rows(64, 3)
    ends = next(row for row, shown in enumerate(table["shown"].to_pylist()) if len(shown) == 2) + 1
    table = table.slice(0, ends)
    table = changed(table, column, change(table[column].to_pylist()))
    for file in ("train", "test"):
        pq.write_table(table, tmp_path / f"{file}.parquet")
    tasks = {"click": {"label": "click", "losses": ["binary_cross_entropy"]}}
    with pytest.raises(DataError, match=message):
        runs.train(described(tmp_path, tasks, steps=1), tmp_path / "run", stream=io.StringIO())
