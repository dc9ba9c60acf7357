"""Sources: the published layouts, generated clicks, records in a config."""

import gc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics

from sparrow.data import (
    ClickLog,
    Criteo,
    Csv,
    DataError,
    IdFeature,
    Label,
    MovieLens,
    Parquet,
    RawFeature,
    Split,
    Tables,
    write_clicks,
    write_criteo,
)
from sparrow.data.hashing import hash_texts, modulo
from sparrow.data.sources import registry
from tests.data.reading import read_all
from tests.feed.pipelines import pipeline_of


@pytest.mark.parametrize(
    "record",
    [
        Parquet("a/*.parquet"),
        Csv("a.csv", columns=("x", "y"), separator="\t", quote=None),
        Criteo("dac", days=(0, 1)),
        MovieLens("ml-1m"),
        ClickLog(impressions=10, seed=3),
    ],
    ids=registry.name_of,
)
def test_records_round_trip(record):
    assert registry.from_dict(registry.to_dict(record)) == record
    assert registry.from_yaml(registry.to_yaml(record)) == record


CRITEO = [
    "0\t1\t1\t5\t0\t1382\t4\t15\t2\t181\t1\t2\t\t2\t" + "\t".join(f"{i:08x}" for i in range(26)),
    "1\t2\t-1\t44\t1\t102\t8\t2\t2\t4\t1\t1\t\t4\t" + "\t".join(["" if i == 3 else f"{i * 9:08x}" for i in range(26)]),
]


@pytest.mark.parametrize("names", [("train.txt",), ("day_0", "day_1"), ("day_0", "day_1.gz")])
def test_criteo(tmp_path, names):
    for name, line in zip(names, CRITEO if len(names) == 2 else ["\n".join(CRITEO)], strict=True):
        with pa.output_stream(str(tmp_path / name), compression="detect") as file:
            file.write(f"{line}\n".encode())
    source = Criteo(str(tmp_path))
    (batch,) = pipeline_of(source, source.features(1000, 8), labels=["label"], batch_size=2)
    assert batch.labels["label"].tolist() == [0.0, 1.0]
    np.testing.assert_allclose(batch.numbers["count_5"][:, 0], np.log1p([1382, 102]), rtol=1e-6)
    assert batch.numbers["count_2"][1, 0] == 0.0  # negative
    assert batch.numbers["count_12"].tolist() == [[0.0], [0.0]]  # missing
    expected = modulo(hash_texts(pa.array(["00000003"])), 1000).tolist()
    assert batch.ids["category_4"].tolist() == [*expected, -1]
    assert len(batch.ids) == 26


def test_criteo_test_part_has_no_label(tmp_path):
    (tmp_path / "test.txt").write_text(CRITEO[0].split("\t", 1)[1] + "\n")
    source = Criteo(str(tmp_path), part="test")
    (batch,) = pipeline_of(source, source.features(), batch_size=2)
    assert len(batch) == 1


def write_movielens(folder, version):
    flags = ["0"] * 19
    flags[1] = flags[5] = "1"
    files = {
        "100k": {
            "u.data": "196\t242\t3\t881250949\n186\t302\t4\t891717742\n",
            "u.item": f"242|Kolya (1996)|24-Jan-1997||http://x|{'|'.join(flags)}\n"
            f"302|L\xe9on (1994)|01-Jan-1994||http://y|{'|'.join(['0'] * 18 + ['1'])}\n",
            "u.user": "196|49|M|writer|55105\n186|39|F|executive|00000\n",
        },
        "1m": {
            "ratings.dat": "196::242::3::978300760\n186::302::4::978302109\n",
            "movies.dat": "242::Kolya: a film (1996)::Action|Comedy\n302::L\xe9on (1994)::Western\n",
            "users.dat": "196::M::49::20::55105\n186::F::39::6::00000\n",
        },
        "25m": {
            "ratings.csv": "userId,movieId,rating,timestamp\n196,242,3.0,1147880044\n186,302,4.5,1147868817\n",
            "movies.csv": 'movieId,title,genres\n242,"Kolya, a film (1996)",Action|Comedy\n'
            "302,L\xe9on (1994),Western\n",
        },
    }[version]
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf8" if version == "25m" else "latin1")


@pytest.mark.parametrize("version", ["100k", "1m", "25m"])
def test_movielens(tmp_path, version):
    write_movielens(tmp_path, version)
    source = MovieLens(str(tmp_path))
    features = [
        IdFeature("user_id", num_buckets=1000, embedding_dim=4),
        IdFeature("movie_id", num_buckets=2000, embedding_dim=4),
        IdFeature("genres", vocabulary=("Action", "Comedy", "Western"), separator="|", embedding_dim=4),
        IdFeature("title", vocabulary=("L\xe9on (1994)",), embedding_dim=4),
    ]
    if version != "25m":
        features.append(IdFeature("gender", vocabulary=("F", "M"), embedding_dim=4))
        features.append(RawFeature("age"))
    (batch,) = pipeline_of(source, features, labels=[Label("liked", "rating", at_least=4)], batch_size=2)
    assert batch.ids["user_id"].tolist() == [196, 186]
    assert batch.ids["genres"].to_lists() == [[0, 1], [2]]
    assert batch.ids["title"].tolist() == [1, 0]
    assert batch.labels["liked"].tolist() == [0.0, 1.0]
    if version != "25m":
        assert batch.ids["gender"].tolist() == [1, 0]
        assert batch.numbers["age"].tolist() == [[49.0], [39.0]]


def test_movielens_rating_of_an_unknown_movie(tmp_path):
    write_movielens(tmp_path, "1m")
    with (tmp_path / "ratings.dat").open("a") as file:
        file.write("196::7::3::978300760\n")
    source = MovieLens(str(tmp_path))
    with pytest.raises(DataError, match=r"ratings.dat, line 3, column 'movie_id': '7' is not in movies.dat"):
        read_all(source, ["title"])
    columns, rows = read_all(source, ["title"], bad_rows="skip")
    assert len(columns["title"]) == 2
    assert rows[0].skipped == 1


def test_click_log_and_its_parquet_file_are_the_same(tmp_path):
    log = ClickLog(impressions=250, fields=3, ids=50, chunk_rows=100, counts=2)
    write_clicks(log, tmp_path / "clicks.parquet")
    generated, _ = read_all(log)
    assert read_all(Parquet(str(tmp_path / "clicks.parquet")))[0] == generated
    assert pq.read_metadata(tmp_path / "clicks.parquet").num_row_groups == 3
    truth = log.batch(1, 100)
    assert generated["id_2"][100:200] == truth.ids[:, 2].tolist()
    assert generated["label"][100:200] == truth.labels.tolist()
    assert generated["count_1"][100:200] == truth.counts[:, 1].tolist()
    other, _ = read_all(ClickLog(impressions=250, fields=3, ids=50, chunk_rows=100, start=3))
    assert other["id_0"] != generated["id_0"]


def test_no_ranking_beats_the_truth():
    log = ClickLog(impressions=20_000, fields=4, ids=50, counts=3, chunk_rows=8192)
    columns, _ = read_all(log)
    labels, truth = np.array(columns["label"]), np.array(columns["probability"])
    best = sklearn.metrics.roc_auc_score(labels, truth)
    assert log.best_auc() == pytest.approx(best, abs=1e-12)
    assert 0.6 < best < 0.95
    assert abs(truth.mean() - labels.mean()) < 0.01  # the coin is thrown with the true probability
    for seed in range(3):
        noisy = truth + np.random.default_rng(seed).normal(0, 0.1, len(truth))
        assert sklearn.metrics.roc_auc_score(labels, noisy) < best
    without = ClickLog(impressions=20_000, fields=4, ids=50, chunk_rows=8192)
    assert read_all(without, ["id_0"])[0]["id_0"] == columns["id_0"]  # counts change no other draw


def test_clicks_in_criteos_format(tmp_path):
    log = ClickLog(impressions=30, fields=26, counts=13, ids=50, chunk_rows=20)
    write_criteo(log, tmp_path / "train.txt")
    source = Criteo(str(tmp_path))
    (batch,) = pipeline_of(source, source.features(10**6, 4), labels=["label"], batch_size=30)
    (truth,) = pipeline_of(log, log.features(4), labels=["label"], batch_size=30)
    assert batch.labels["label"].tolist() == truth.labels["label"].tolist()
    for i in range(13):
        np.testing.assert_array_equal(batch.numbers[f"count_{i + 1}"], truth.numbers[f"count_{i}"])
    for i in range(26):
        ids, hashed = truth.ids[f"id_{i}"].tolist(), batch.ids[f"category_{i + 1}"].tolist()
        assert len(set(zip(ids, hashed, strict=True))) == len(set(ids)) == len(set(hashed))
    with pytest.raises(ValueError, match="Criteo's format has 13 counts and 26 fields, got 0 and 8"):
        write_criteo(ClickLog(impressions=5), tmp_path / "x.txt")


def test_nothing_of_a_parquet_file_waits_for_the_garbage_collector(tmp_path):
    """A stream reads files for ever, and runs collect seldom."""
    pq.write_table(pa.table({"item": [1, 2, 3]}), tmp_path / "a.parquet")

    def left():
        return sum(type(one).__name__ in ("FileMetaData", "ParquetSchema", "ParquetFile") for one in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = left()
        source = Parquet(str(tmp_path / "a.parquet"))
        assert list(source.column_names()) == ["item"]
        assert read_all(source)[0] == {"item": [1, 2, 3]}
        assert left() == before
    finally:
        gc.enable()


def test_a_split_source_has_the_rows_of_its_source():
    inner = Tables({"both": ["red:7", "blue:1", "red:2"]})
    opened, split = inner.open(["both"]), Split(inner, "both", ":", into=("color", "size")).open(["size"])
    assert (split.num_rows, split.num_chunks) == (opened.num_rows, opened.num_chunks) == (3, 1)
    assert split.fingerprint == opened.fingerprint


def test_rows_that_a_split_leaves_out_keep_their_reasons():
    reader = Split(Tables({"both": ["red:7", "blue", "red:2"]}), "both", ":", into=("color", "size")).open(["size"])
    rows = reader.read(0, "skip")
    assert (rows.table.to_pydict(), rows.skipped, rows.place(1)) == ({"size": ["7", "2"]}, 1, "row 2")
    assert rows.refused == [("row 1", "needs 2 values between ':', got 'blue'", "{'both': 'blue'}")]
    with pytest.raises(DataError, match="row 1, column 'both': needs 2 values"):
        reader.read(0, "error")


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ({"price": 1.5, "item": [1]}, DataError, r"column 'price' must have a value per row, such as \[1.5\]"),
        ({"item": None}, DataError, "column 'item' must have a value per row"),
        (pd.DataFrame({"item": [1]}).iloc[0], TypeError, "got a Series; for one row take frame"),
    ],
)
def test_one_row_is_no_table(rows, error, message):
    with pytest.raises(error, match=message):
        Tables(rows)
