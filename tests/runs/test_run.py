"""A run is an object: it predicts, evaluates, shows its tables, finds neighbors, exports itself."""

import io

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sparrow as sp
from sparrow import config as configs
from sparrow import runs
from sparrow.data import DataError, Tables
from tests.runs.cases import BASE, case

WORDS = [f"w{i}" for i in range(20)]
ROWS = 600


def frame(rows=ROWS, seed=0):
    """A click depends on the parity of the item, which has words; every column in memory."""
    generator = np.random.default_rng(seed)
    item, user = generator.integers(0, 20, rows), generator.integers(0, 20, rows)
    label = (item % 2 == 0) ^ (generator.random(rows) < 0.05)
    return {"user": user, "item": [WORDS[i] for i in item], "label": label.astype(np.int64)}


def described(rows=None, *overrides, **sections):
    features = [
        {"kind": "id", "name": "user", "num_buckets": 20, "embedding_dim": 4},
        {"kind": "id", "name": "item", "vocabulary": WORDS, "embedding_dim": 4},
    ]
    data = {"train": Tables(rows or frame()), "evaluate": Tables(frame(200, 1)), "features": features}
    names = ["user", "item"]
    model = {**BASE["model"], "groups": {"wide": names, "deep": names}}
    base = {**BASE, "data": data, "model": model, **sections}
    return configs.from_mapping(base, overrides=("train.batch_size=100", "train.steps=30", *overrides))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    return runs.train(described(), folder, stream=io.StringIO())


def test_a_run_of_memory_has_a_folder(run):
    assert run.results["auc"] > 0.9
    assert (run.folder / "checkpoints" / "30").is_dir()
    assert run.report().is_file()
    again = runs.load(run.folder)
    assert again.step == 30
    assert again.results == run.results
    assert repr(again) == repr(run)
    assert "name: in_memory" in configs.dumps(again.config)
    with pytest.raises(DataError, match="600 rows in memory, which its folder does not hold; give the data again"):
        list(again.config.data.train.open(["item"]).schemas)
    assert again.evaluate(frame(200, 1)) == run.evaluate()
    assert run.evaluate() == run.results


def test_a_run_of_memory_is_resumed(tmp_path):
    runs.train(described(None, "train.steps=10"), tmp_path / "a", stream=io.StringIO())
    resumed = runs.train(described(), tmp_path / "a", resume=True, stream=io.StringIO())
    whole = runs.train(described(), stream=io.StringIO())
    np.testing.assert_array_equal(resumed.table("item").to_numpy(), whole.table("item").to_numpy())
    with pytest.raises(ValueError, match="cannot continue"):
        runs.train(described(frame(seed=5), "train.steps=40"), tmp_path / "a", resume=True, stream=io.StringIO())


def test_predict_takes_anything_that_holds_rows(run, tmp_path):
    rows = frame(50, 2)
    table = pa.table(rows)
    pq.write_table(table, tmp_path / "rows.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    expected = run.predict(rows)["click"]
    assert expected.shape == (50,)
    assert np.std(expected) > 0.1
    programs = run.program.predictions.programs
    files = [str(tmp_path / "rows.parquet"), tmp_path / "rows.csv"]
    for given in (table, pd.DataFrame(rows), pl.DataFrame(rows), Tables(rows), *files):
        np.testing.assert_allclose(run.predict(given)["click"], expected, rtol=1e-6)
    assert run.program.predictions.programs == programs  # compiled once
    without_label = table.drop_columns(["label"])
    np.testing.assert_allclose(run.predict(without_label, batch_size=7)["click"], expected, rtol=1e-5)
    assert run.predict_file(table, tmp_path / "out.parquet", columns=["user", "truth=label"]) == 50
    assert pq.read_table(tmp_path / "out.parquet").column_names == ["user", "truth", "click"]
    with pytest.raises(DataError, match=r"^the table lacks column 'item', which the model reads$"):
        run.predict(table.drop_columns(["item"]))
    with pytest.raises(DataError, match=r"^the table lacks column 'label', the label$"):
        run.evaluate(without_label)
    with pytest.raises(DataError, match=r"'item', which the model reads; 'items' is near, rename it if it is meant$"):
        run.evaluate(table.rename_columns(["user", "items", "label"]))
    with pytest.raises(TypeError, match="a frame of pandas or Polars, an Arrow table, or columns by name, got int"):
        run.predict(5)


def test_text_files_are_read_as_those_of_training(tmp_path):
    rows = frame(300)
    lines = "\n".join(f"{u};{i};{x}" for u, i, x in zip(rows["user"], rows["item"], rows["label"], strict=True))
    (tmp_path / "train.csv").write_text(lines + "\n")
    source = {"name": "csv", "path": str(tmp_path / "train.csv"), "separator": ";"}
    source["columns"] = ["user", "item", "label"]
    made = described(None, "train.steps=5")
    data = {**configs.plain(made)["data"], "train": source, "evaluate": None}
    trained = runs.train({**configs.plain(made), "data": data}, stream=io.StringIO())
    np.testing.assert_allclose(
        trained.predict(tmp_path / "train.csv")["click"], trained.predict(rows)["click"], rtol=1e-6
    )


def test_tables_and_vectors(run):
    table = run.table("item")
    assert table.shape == (21, 4)
    assert table.ids() == [*WORDS, None]
    array = np.asarray(table)
    np.testing.assert_array_equal(table["w3"], array[3])
    np.testing.assert_array_equal(run.vectors("item", ["w3", "no such", None])[0], array[3])
    np.testing.assert_array_equal(
        run.vectors("item", ["w3", "no such", None])[1], array[20]
    )  # the row of unknown words
    np.testing.assert_array_equal(run.vectors("item", ["w3", "no such", None])[2], np.zeros(4))
    arrow = table.to_arrow()
    assert arrow.column_names == ["row", "id", "embedding"]
    np.testing.assert_array_equal(np.stack(arrow["embedding"].to_numpy()), array)
    np.testing.assert_array_equal(run.vectors("user", [7, 1]), run.table("user").to_numpy()[[7, 1]])
    with pytest.raises(DataError, match=r"row 1.*25"):
        run.vectors("user", [7, 25])
    with pytest.raises(ValueError, match="no table 'items': did you mean 'item'"):
        run.table("items")


def test_neighbors_are_exact(run):
    array = run.table("item").to_numpy()
    unit = array / np.linalg.norm(array, axis=1, keepdims=True)
    found = run.neighbors("item", ["w3", "w4"], k=5)
    for i, row in enumerate((3, 4)):
        scores = unit @ unit[row]
        scores[[row, 20]] = -2  # itself, and the row of unknown words
        expected = np.argsort(-scores)[:5]
        np.testing.assert_array_equal(found.rows[i], expected)
        np.testing.assert_allclose(found.scores[i], scores[expected], rtol=1e-5)
        assert found.ids[i] == [WORDS[row] for row in expected]
    # an item's nearest are of its own parity, as the labels are
    assert (found.rows[0] % 2 == 1).mean() >= 0.8
    everything = run.neighbors("item", "w3", k=40)
    assert sorted(everything.ids[0]) == sorted(set(WORDS) - {"w3"})
    assert everything.rows.shape == everything.scores.shape == (1, 19)
    assert np.isfinite(everything.scores).all()
    numbers = run.neighbors("user", [7, 3], k=2)
    assert numbers.ids == numbers.rows.tolist()


def test_unknown_ids_have_no_neighbors(run):
    with pytest.raises(DataError, match=r"'w99' is not in the vocabulary of 'item'; did you mean 'w9'\?"):
        run.neighbors("item", ["w3", "w99"])
    with pytest.raises(DataError, match="None is not in the vocabulary of 'item'"):
        run.neighbors("item", ["w3", None])


def test_words_with_rows_of_their_own():
    """Several words may share a row; rows without a word have no id."""
    features = [{"kind": "id", "name": "item", "vocabulary": {"w0": 2, "w1": 0, "w2": 2}, "embedding_dim": 4}]
    made = described(
        None,
        "train.steps=1",
        "data.evaluate=null",
        model={**BASE["model"], "groups": {"wide": ["item"], "deep": ["item"]}},
    )
    data = {**configs.plain(made)["data"], "train": Tables(frame()), "features": features}
    trained = runs.train({**configs.plain(made), "data": data}, stream=io.StringIO())
    assert trained.table("item").ids()[:3] == ["w1", None, "w0"]
    assert trained.neighbors("item", "w2").ids == [["w1"]]


def test_neighbors_in_blocks():
    generator = np.random.default_rng(0)
    queries, rows = generator.normal(size=(9, 6)), generator.normal(size=(500, 6))
    rows[7] = rows[321]  # equal scores: the first row is first
    whole = runs.nearest_rows(queries, [rows], 12, "dot")
    parts = runs.nearest_rows(queries, np.split(rows, [3, 200, 201]), 12, "dot")
    np.testing.assert_array_equal(whole.rows, parts.rows)
    np.testing.assert_array_equal(
        whole.rows, np.argsort(-(queries @ rows.T).astype(np.float32), axis=1, kind="stable")[:, :12]
    )


def test_it_shows_itself(run):
    assert repr(run).startswith("Run(DeepFM of step 30; loss ")
    html = run._repr_html_()
    assert "<svg" in html
    assert "exact_auc" in html
    assert "<script" not in html
    assert "w0" in run.table("item")._repr_html_()
    assert repr(run.table("item")) == "TableView('item': 21 × 4, float32; of item)"
    assert "item" in run.embedder._repr_html_()


def test_it_exports_and_saves_itself(run, tmp_path):
    run.export(tmp_path / "exported")
    served = sp.serving.load(tmp_path / "exported").predict(frame(20, 3))["click"]
    np.testing.assert_allclose(served, run.predict(frame(20, 3))["click"], atol=1e-6)
    for made in (pd.DataFrame, pl.DataFrame):
        of_frame = sp.serving.load(tmp_path / "exported").predict(made(frame(20, 3)))["click"]
        np.testing.assert_array_equal(of_frame, served)
    copy = run.save(tmp_path / "copy")
    np.testing.assert_array_equal(copy.predict(frame(20, 3))["click"], run.predict(frame(20, 3))["click"])
    with pytest.raises(ValueError, match="exists; choose another folder"):
        run.save(tmp_path / "copy")
    alone = runs.train(described(None, "train.steps=1"), stream=io.StringIO())
    with pytest.raises(ValueError, match="the run has no folder; train with folder="):
        alone.report()


def test_train_takes_a_path_or_a_mapping(tmp_path):
    made = case("train.steps=1", "data.evaluate=null")
    (tmp_path / "a.yaml").write_text(configs.dumps(made))
    for given in (made, configs.plain(made), tmp_path / "a.yaml", str(tmp_path / "a.yaml")):
        assert runs.train(given, stream=io.StringIO()).steps == 1
    with pytest.raises(ValueError, match="a config is a Config, a mapping or the path of a file, got list"):
        runs.train([])


@pytest.mark.parametrize("how", ["early stopping", "best_by"])
def test_the_best_checkpoint_is_used(how, tmp_path):
    """Labels turn around after the first half of training: the best step is in the middle."""
    rows = frame(4000)
    rows["label"][2000:] = 1 - rows["label"][2000:]
    stop = {"metric": "auc", "mode": "max", "patience": 2 if how == "early stopping" else 1000}
    options = ["data.shuffle_rows=0", "train.steps=40", "evaluate.every_steps=5", "train.checkpoint.keep=2"]
    if how == "early stopping":
        options.append(f"evaluate.early_stopping={stop}")
    else:
        options.append("train.checkpoint.best_by={metric: auc, mode: max}")
    made = runs.train(described(rows, *options), tmp_path / "run", stream=io.StringIO())
    assert made.step < made.steps
    assert made.results["auc"] > 0.9
    assert f"step {made.step} is used, the best" in made.note
    best = runs.load(tmp_path / "run")
    assert best.step == made.step
    assert best.results == made.results
    assert best.note == f"step {made.step} is used, the best by auc; the last is {made.steps}"
    assert best.evaluate(frame(200, 1)) == made.results
    last = runs.load(tmp_path / "run", step="last")
    assert last.step == made.steps
    assert not last.note
    assert last.evaluate(frame(200, 1))["auc"] < best.results["auc"]
    np.testing.assert_array_equal(made.table("item").to_numpy(), best.table("item").to_numpy())


def test_towers(tmp_path):
    tower = {"mlp": {"hidden_units": [8]}}
    architecture = {
        "name": "dssm",
        "user_tower": {"input": "users", **tower},
        "item_tower": {"input": "items", **tower},
    }
    made = described(
        None,
        "train.steps=5",
        model={"architecture": {**architecture, "output_dim": 4}, "groups": {"users": ["user"], "items": ["item"]}},
        tasks={"match": {"label": "label", "losses": ["in_batch_softmax"]}},
    )
    run = runs.train(made, stream=io.StringIO())
    assert run.towers == ("user", "item")
    rows = frame(30)
    predicted = run.predict(rows)
    users, items = run.vectors("user", {"user": rows["user"]}), run.vectors("item", {"item": rows["item"]})
    np.testing.assert_allclose(users, predicted["user_vector"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(items, predicted["item_vector"], rtol=1e-5, atol=1e-6)
    found = run.neighbors("item", {"user": rows["user"][:3]}, k=4, among={"item": WORDS})
    scores = users[:3] @ run.vectors("item", {"item": WORDS}).T
    np.testing.assert_array_equal(found.rows, np.argsort(-scores, axis=1, kind="stable")[:, :4])
    with pytest.raises(DataError, match="lacks column 'user', which the model reads"):
        run.vectors("user", {"item": WORDS})
    assert run.neighbors("item", {"user": [1]}, k=40, among={"item": WORDS}).rows.shape == (1, 20)
    with pytest.raises(ValueError, match="give among=, the rows to choose from"):
        run.neighbors("item", {"user": [1]})
    run.export(tmp_path / "exported")
    served = sp.serving.load(tmp_path / "exported")
    np.testing.assert_allclose(served.vectors("user", {"user": rows["user"]}), users, atol=1e-6)
