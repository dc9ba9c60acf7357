"""From a frame to a trained model: the guesses, their overrides, the config they stand for, the run."""

import dataclasses
import gc
import io
import itertools

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import sparrow as sp
from sparrow import config as configs
from sparrow.data import ComboFeature, DataError, HeldOut, IdFeature, RawFeature, Tables
from sparrow.frames import first_config, read_column

ROWS = 1500
SMALL = {"name": "deepfm", "deep": {"hidden_units": [8]}}


def columns(rows=ROWS, seed=0):
    """The click depends on user and item, each by its parity."""
    generator = np.random.default_rng(seed)
    user, item = generator.integers(0, 40, rows), generator.integers(0, 30, rows)
    age = generator.integers(18, 80, rows).astype(float)
    age[::7] = np.nan
    flip = generator.random(rows) < 0.05
    return {
        "user_id": user,
        "item": [f"item {i}" for i in item],
        "age": age,
        "genres": np.where(item % 3 == 0, "Action|Drama", "Comedy"),
        "price": np.exp(2 * generator.normal(size=rows)),
        "one": np.ones(rows),
        "click": ((user % 2 == item % 2) ^ flip).astype(np.int64),
    }


def small(data, **options):
    options = {"epochs": 6, "embedding_dim": 8, "batch_size": 64, "overrides": ["train.tensorboard=false"], **options}
    return sp.fit(data, target="click", model=SMALL, stream=io.StringIO(), **options)


def read(name, values, **options):
    made = read_column(name, pa.chunked_array([pa.array(values)]), **options)
    return made.feature, made.words


def test_columns_are_read_by_type_and_name():
    assert read("user_id", [3, 1, 3]) == (
        IdFeature("user_id", num_buckets=4, unknown="row", embedding_dim=16),
        "ids 0 to 3",
    )
    assert read("color", ["red", None, "blue"])[0].vocabulary == ("blue", "red")
    assert read("zip_code", ["00501", "10001"])[0].vocabulary == ("00501", "10001")
    assert read("user_id", [1.0, np.nan, 7.0])[0].num_buckets == 8  # integers with gaps, of pandas
    assert read("score", ["1.5", "2.5"])[0] == RawFeature("score", mean=2.0, std=0.5, missing=2.0)  # of a text file
    assert read("flag", [True, False])[0].num_buckets == 2
    assert read("tags", [["a", "b"], ["a"]])[0].pooling == "mean"
    assert read("vector", [[1.0, 2.0], [3.0, 4.0]])[0] == RawFeature("vector", dim=2)
    bags = read("genres", ["Action|Drama", "Comedy"] * 5)[0]
    assert (bags.separator, bags.vocabulary) == ("|", ("Action", "Comedy", "Drama"))
    assert read("tags", ["a,b", "c"] * 5)[0].separator == ","
    assert read("place", ["Rome, Italy", "Oslo, Norway"] * 30)[0].separator is None  # punctuation
    years = read("year", [1900 + i % 100 for i in range(1000)])
    assert isinstance(years[0], RawFeature)  # of 100 values, ten rows each
    assert read("year", [1900 + i % 100 for i in range(5000)])[0].vocabulary[0] == 1900
    clicks = read("clicks", [0, 1, 2, 5000, 3] * 1000 + list(range(1200)))[0]
    assert isinstance(clicks, RawFeature)
    far = read("item_id", [10**9 + 7 * i for i in range(20_000)] * 2)
    assert far[0].hash_bucket_size == 80_000
    assert far[1] == "20,000 ids, hashed into 80,000 rows; about 22% share a row"
    assert read("user_id", [3, 1, 3], complete=False)[0].hash_bucket_size == 10_000


def test_columns_that_are_left_out():
    assert read("one", [1, 1, 1]) == (None, "left out: it holds one value")
    assert read("none", pa.nulls(3, pa.string()))[1] == "left out: it holds no values"
    assert read("row", list(range(100)))[1] == "left out: it is different in every row"
    assert read("session", [f"s{i}" for i in range(100)])[1] == "left out: it is different in every row"
    assert read("price", [7 * i * i for i in range(100)])[0] is not None  # different numbers are no numbering
    assert read("text", ["a long sentence about something that was seen " * 3, "b"])[1].startswith("left out: long")
    when = pa.array([1, 2], pa.timestamp("s"))
    assert read_column("when", when).words.startswith("left out: a time")
    seconds = [881_250_949 + 7919 * i for i in range(100)]
    for times in (seconds, [float(x) for x in seconds], [str(x * 1000) for x in seconds]):
        assert read("rated", times)[1].startswith("left out: a time")
    assert read("user_id", seconds)[0] is None  # different in every row, not a time
    assert read("mixed", [[1.0], [1.0, 2.0]])[0] is None
    assert read("user_id", [1, 2], kind="skip")[0] is None


def test_a_guess_is_shown_and_saved(tmp_path):
    made = sp.guess(pd.DataFrame(columns()), target="click")
    shown = repr(made)
    for line in ("ids 0 to 39", "a vocabulary of 30", "bags of ids", "logarithm of 1 + x", "target: yes or no"):
        assert line in shown
    assert "one" in [reading.column for reading in made.readings if reading.feature is None]
    assert "<table>" in made._repr_html_()
    made.save(tmp_path / "a.yaml")
    again = configs.load(tmp_path / "a.yaml")
    assert configs.plain(again) == configs.plain(made.config)
    assert again.data.train == made.config.data.train.stand_in()
    data = made.config.data
    trained, held_out = (sum(map(len, numbers(source))) for source in (data.train_rows, data.evaluate_rows))
    assert 0.05 * ROWS < held_out < 0.2 * ROWS
    assert trained + held_out == ROWS
    assert f"{held_out} of {ROWS:,} rows are held out to evaluate on" in shown


def test_every_guess_can_be_overridden():
    changes = {
        "user_id": {"embedding_dim": 32},
        "item": IdFeature("item", hash_bucket_size=50, embedding_dim=16),
        "age": "id",
        "price": None,
        "genres": {"kind": "id", "hash_bucket_size": 10, "embedding_dim": 16},
        "user_item": ComboFeature("user_item", cross=("user_id", "item"), hash_bucket_size=100, embedding_dim=16),
    }
    options = {"features": changes, "batch_size": 128, "overrides": ["train.epochs=3"]}
    made = sp.guess(columns(), "click", "dcn_v2", evaluate=None, loss="binary_focal", weight="one", **options)
    features = {feature.name: feature for feature in made.config.data.features}
    assert list(features) == ["user_id", "item", "age", "genres", "user_item"]
    assert features["user_id"].embedding_dim == 32
    assert features["item"].hash_bucket_size == 50
    assert features["age"].num_buckets == 80
    assert (made.config.train.epochs, made.config.train.batch_size) == (3, 128)
    assert made.config.tasks["click"].sample_weight == "one"
    assert type(made.config.tasks["click"].losses[0]).__name__ == "BinaryFocal"
    assert made.config.data.evaluate is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"target": "clicks"}, "no column 'clicks': did you mean 'click'"),
        ({"features": {"ages": "id"}}, "no column 'ages': did you mean 'age'"),
        ({"features": {"age": "numbr"}}, r"features\['age'\] must be one of 'id', 'number', 'bag', 'skip'"),
        ({"target": "item"}, "target 'item' must hold numbers, got string such as"),
        ({"model": "deepfmm"}, "did you mean 'deepfm'"),
        ({"model": "dssm"}, "has two towers: give item=, the columns that describe an item"),
        ({"loss": "l3"}, "unknown loss 'l3'"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, got 0"),
        (
            {"features": {"place": "id"}},
            r"features\['place'\]: struct<.*> has values inside of values; make a column of",
        ),
        ({"evaluate": 0.001}, "evaluate=0.001 of 20 rows leaves none; give more rows"),
        ({"time": "age"}, "time= is for a log of choices without a target"),
        ({"evaluate": 1.5}, "evaluate must be a finite number above 0 and below 1"),
        ({"data": []}, "a frame of pandas or Polars, an Arrow table, or columns by name, got list"),
        ({"label": "click"}, "guess has no argument 'label': did you mean 'target'"),
    ],
)
def test_mistakes_get_one_sentence(change, sentence):
    data = pa.table({**columns(20), "place": [{"city": "Rome"}] * 20})
    given = {"data": data, "target": "click", **change}
    with pytest.raises((ValueError, TypeError), match=sentence):
        sp.guess(**given)


def test_a_wrong_argument_of_fit_gets_the_nearest_of_all_its_arguments():
    with pytest.raises(TypeError, match="fit has no argument 'foldr': did you mean 'folder'"):
        sp.fit(columns(20), "click", foldr="run")
    with pytest.raises(TypeError, match="fit has no argument 'epoch': did you mean 'epochs'"):
        sp.fit(columns(20), "click", epoch=1)


@pytest.mark.parametrize("model", ["wide_and_deep", "dlrm", "dcn_v1", "mask_net", "xdeepfm", "mmoe"])
def test_models_need_no_options(model):
    made = sp.guess(columns(300), "click", model)
    assert sp.runs.Program.of(made.config).config is made.config


def test_numbers_classes_and_several_targets():
    data = {**columns(300), "rating": np.arange(300) % 5 + 0.5, "color": np.arange(300) % 3}
    rating = sp.guess(data, "rating")
    assert (rating.targets[0].loss, rating.config.evaluate.early_stopping.mode) == ("l2", "min")
    color = sp.guess(data, "color", loss="softmax_cross_entropy")
    assert color.config.model.architecture.num_classes == 3
    both = sp.guess(data, ["click", "rating"], "mmoe")
    assert list(both.config.tasks) == ["click", "rating"]
    assert both.config.evaluate.early_stopping.metric == "loss"


def test_five_lines(capsys):
    frame = pl.DataFrame(columns())
    run = sp.fit(frame, target="click", model=SMALL, epochs=6, embedding_dim=8, batch_size=64)
    assert run.results["auc"] > 0.85
    assert "ids 0 to 39" in capsys.readouterr().out
    predicted = run.predict(pl.DataFrame(columns(200, seed=1)))["click"]
    truth = columns(200, seed=1)["click"]
    assert ((predicted > 0.5) == truth).mean() > 0.85
    folder = run.folder
    assert (folder / "config.yaml").is_file()
    del run
    gc.collect()
    assert not folder.exists()  # a temporary one ends with its run


def test_a_folder_stays_and_is_resumed(tmp_path):
    run = small(columns(400), folder=tmp_path / "run", epochs=1)
    assert sp.runs.load(tmp_path / "run").results == run.results
    more = small(columns(400), folder=tmp_path / "run", epochs=2, resume=True)
    assert more.steps == 2 * run.steps
    with pytest.raises(ValueError, match="holds a finished run"):
        small(columns(400), folder=tmp_path / "run")


def numbers(source, column="item"):
    """The values of a column, by chunk."""
    reader = source.open([column])
    return [reader.read(chunk, "error").table[column].to_pylist() for chunk in range(reader.num_chunks)]


def test_files_are_held_out_row_by_row(tmp_path):
    table = pa.table(columns(600))
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=100)
    pyarrow.csv.write_csv(table, tmp_path / "rows.csv")
    for path in (tmp_path / "rows.parquet", str(tmp_path / "rows.csv")):
        made = sp.guess(path, "click", SMALL, evaluate_by="user_id")
        again = configs.loads(made.yaml())
        assert again == made.config
        users = []
        for source in (again.data.train_rows, again.data.evaluate_rows):
            users.append([int(user) for chunk in numbers(source, "user_id") for user in chunk])
        assert len(users[0]) + len(users[1]) == 600
        assert not set(users[0]) & set(users[1])
        assert users[1]
    assert {feature.name: type(feature) for feature in made.config.data.features}["age"] is RawFeature


def test_held_out_rows_do_not_depend_on_the_columns_read():
    source = Tables({"a": np.arange(1000), "b": np.arange(1000)}, chunk_rows=300)
    for part in ("train", "evaluate"):
        one, both = (HeldOut(source, part, 0.3).open(names) for names in (["a"], ["b", "a"]))
        for chunk in range(4):
            rows, others = one.read(chunk, "error"), both.read(chunk, "error")
            assert rows.table["a"].equals(others.table["a"])
            if rows.table.num_rows:
                assert rows.place(0) == f"row {rows.table['a'][0].as_py()}"


@pytest.mark.parametrize(("matching", "row"), [(False, 700), (False, 3), (True, 700)])
def test_errors_number_the_rows_of_the_frame(matching, row):
    """Not those that are left after some are held out, or were not chosen."""
    given = columns(1000)
    given["price"][row], given["click"][row] = np.inf, 1
    options = {"model": {"name": "dssm", "output_dim": 4}, "item": ["item", "price"]} if matching else {}
    made = sp.guess(given, "click", features={"price": RawFeature("price")}, seed=2, **options).config
    batches = itertools.chain(configs.evaluate_pipeline(made), configs.train_pipeline(made))
    with pytest.raises(DataError, match=rf"row {row}, column 'price': inf is not a finite number"):
        list(itertools.islice(batches, 200))


def test_two_towers_learn_from_rows_that_were_chosen():
    model = {"name": "dssm", "output_dim": 4}
    made = sp.guess(columns(300), "click", model, item=["item", "genres"], features={"price": None})
    assert made.config.model.groups == {"user": ("user_id", "age"), "item": ("item", "genres")}
    clicked = int(columns(300)["click"].sum())
    assert f"two towers learn from the {clicked} rows whose click is above 0" in repr(made)
    run = sp.runs.train(made.config, stream=io.StringIO())
    assert run.towers == ("user", "item")
    assert made.config.data.user_column == "user_id"
    assert "'user_id' is the user" in repr(made)
    assert made.config.evaluate.early_stopping.metric == "catalog_recall_at_20"
    assert 0 < run.results["catalog_recall_at_20"] < 1


def test_two_towers_without_an_id_of_the_item_or_the_user():
    data = {**columns(300), "visitor": np.arange(300) % 7, "item": columns(300)["price"]}
    made = sp.guess(data, "click", "dssm", item=["genres"], features={"price": None})
    assert made.config.data.user_column is None  # the user, or the visitor
    assert made.config.evaluate.early_stopping.metric == "loss"


def test_columns_with_values_inside_of_values_are_left_out():
    made = sp.guess(pa.table({**columns(60), "place": [{"city": "Rome", "zip": 1}] * 60}), "click")
    line = next(line for line in made.lines() if line.startswith("place"))
    assert "left out: struct<" in line
    assert "make a column of each, with flatten() of an Arrow table" in line


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_every_door_guesses_the_same(tmp_path, suffix):
    """`sparrow init` writes the config that `guess` makes of the file, and a frame has the same features."""
    table, path = pa.table(columns(400)), tmp_path / f"rows.{suffix}"
    if suffix == "parquet":
        pq.write_table(table, path)
    else:
        pyarrow.csv.write_csv(table, path)
    text = first_config(path)
    assert "# ids 0 to 39\n" in text
    assert "# one: left out: it holds one value" in text
    written = configs.loads(text)
    ours = {feature.name: feature for feature in written.data.features}
    assert (ours["item"].vocabulary, ours["genres"].vocabulary) == ("auto", ("Action", "Comedy", "Drama"))
    assert len(text.splitlines()) < 40
    of_file, frame = sp.guess(path, "click").config, sp.guess(table, "click").config
    for other in (of_file, frame):  # which list the words of all rows
        theirs = {feature.name: feature for feature in other.data.features}
        assert ours == theirs | {"item": dataclasses.replace(theirs["item"], vocabulary="auto")}
    assert (written.data.train, written.data.evaluate) == (of_file.data.train, of_file.data.evaluate)
    for section in ("model", "tasks", "train", "evaluate"):
        assert getattr(written, section) == getattr(frame, section)


def test_numbers_alone_get_buckets():
    """A model needs a table."""
    rng = np.random.default_rng(0)
    made = sp.guess({"x": rng.normal(size=99), "z": rng.normal(size=99), "y": rng.integers(0, 2, 99)}, "y")
    assert [len(feature.boundaries) for feature in made.config.data.features] == [9, 9]
    assert "in 10 buckets" in repr(made)
    assert sp.runs.Program.of(made.config).config is made.config
