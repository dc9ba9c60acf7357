"""Sources: text files cut into chunks, the published layouts, generated clicks, vocabularies."""

import gc
import itertools
import tempfile

import hypothesis
import hypothesis.strategies as st
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
    Pipeline,
    RawFeature,
    Split,
    Tables,
    Vocabulary,
    build_vocabularies,
    write_clicks,
    write_criteo,
    write_vocabularies,
)
from sparrow.data.hashing import hash_texts, modulo
from sparrow.data.sources import registry


def read_all(source, columns=None, bad_rows="error"):
    reader = source.open(columns or source.column_names())
    rows = [reader.read(chunk, bad_rows) for chunk in range(reader.num_chunks)]
    return pa.concat_tables(row.table for row in rows).to_pydict(), rows


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_bytes", [1, 10, 57, 10**6])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n"])
def test_chunks_hold_every_line_once(tmp_path, chunk_bytes, ending, last):
    lines = [f"{i},{'x' * (i % 7)}" for i in range(50)]
    text = ending.join(["a,b", *lines]) + last.replace("\n", ending)
    (tmp_path / "t.csv").write_bytes(text.encode())
    columns, rows = read_all(Csv(str(tmp_path / "t.csv"), chunk_bytes=chunk_bytes))
    assert columns["a"] == [str(i) for i in range(50)]
    assert columns["b"] == ["x" * (i % 7) or None for i in range(50)]
    places = [row.place(i) for row in rows for i in range(row.table.num_rows)]
    assert places == [f"line {i + 2}" for i in range(50)]


@pytest.mark.parametrize("chunk_bytes", [1, 10, 57, 10**6])
@pytest.mark.parametrize("last", ["", "\n"])
def test_line_breaks_in_quotes(tmp_path, chunk_bytes, last):
    """Rows of several lines, cut between rows only; the line of a row is where it begins."""
    values = [str(i) + "\n" * (i % 3) + ', ""quoted""' for i in range(30)]
    text = "\n".join(['a,"b\nb"', *(f'{i},"{value}"' for i, value in enumerate(values))]) + last
    (tmp_path / "t.csv").write_text(text)
    source = Csv(str(tmp_path / "t.csv"), chunk_bytes=chunk_bytes, newlines_in_values=True)
    columns, rows = read_all(source)
    assert columns["a"] == [str(i) for i in range(30)]
    assert columns["b\nb"] == [value.replace('""', '"') for value in values]
    lines = [3 + sum(1 + j % 3 for j in range(i)) for i in range(30)]
    assert [row.place(i) for row in rows for i in range(row.table.num_rows)] == [f"line {line}" for line in lines]
    assert source.open(["a"]).num_rows == 30


def test_a_bad_row_among_rows_of_several_lines(tmp_path):
    (tmp_path / "t.csv").write_bytes(b'a,b\n1,"x\ny"\n2\n3,"\xff\n"\n\n4,"\n\n"\n')
    source = Csv(str(tmp_path / "t.csv"), newlines_in_values=True)
    columns, (rows,) = read_all(source, bad_rows="skip")
    assert columns == {"a": ["1", "4"], "b": ["x\ny", "\n\n"]}
    assert (rows.skipped, rows.place(0), rows.place(1)) == (3, "line 2", "line 8")
    with pytest.raises(DataError, match="line 5: byte 0xff is not utf8 text"):
        read_all(source)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.bz2", "t.csv.zst"])
def test_packed_files(tmp_path, name, monkeypatch):
    """They are read as if they were not packed, and leave nothing behind."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    (tmp_path / "data").mkdir()
    with pa.output_stream(str(tmp_path / "data" / name), compression="detect") as packed:
        packed.write(b"a,b\n" + b"".join(b"%d,x\n" % i for i in range(50)))
    source = Csv(str(tmp_path / "data"), chunk_bytes=20)
    columns, rows = read_all(source)
    assert columns["a"] == [str(i) for i in range(50)]
    assert rows[-1].place(0).startswith("line ")
    del rows
    gc.collect()
    assert not list((tmp_path / "temporary").iterdir())


def test_rows_are_counted(tmp_path):
    for text in ("a\n1\n2", "a\n1\n2\n", "a\n1\n2\n\n"):
        (tmp_path / "t.csv").write_text(text)
        assert Csv(str(tmp_path / "t.csv"), chunk_bytes=1).open(["a"]).num_rows == 2
    pq.write_table(pa.table({"a": range(7)}), tmp_path / "t.parquet", row_group_size=3)
    assert Parquet(str(tmp_path / "t.parquet")).open(["a"]).num_rows == 7
    assert Tables({"a": [1, 2, 3]}).open(["a"]).num_rows == 3
    assert ClickLog(impressions=9, fields=1, ids=2).open(["label"]).num_rows == 9


def test_quotes_encodings_separators_and_marks(tmp_path):
    (tmp_path / "q.csv").write_text('a,b\n"x, y",2\n', encoding="utf-8-sig")
    assert read_all(Csv(str(tmp_path / "q.csv")))[0] == {"a": ["x, y"], "b": ["2"]}
    (tmp_path / "l.txt").write_bytes("Caf\xe9::1\n".encode("latin1"))
    source = Csv(str(tmp_path / "l.txt"), columns=("a", "b"), separator="::", quote=None, encoding="latin1")
    assert read_all(source)[0] == {"a": ["Caf\xe9"], "b": ["1"]}
    (tmp_path / "n.tsv").write_bytes(b"\xef\xbb\xbf1\tNA\n")
    source = Csv(str(tmp_path / "n.tsv"), columns=("a", "b"), separator="\t", missing=("NA",))
    assert read_all(source)[0] == {"a": ["1"], "b": [None]}


def test_bad_lines_are_skipped_counted_and_do_not_shift_the_others(tmp_path):
    lines = [b"a,b", b"0,0", b"1", b"2,2", b"\xff,3", b"4,4,4", b"5,5", b"", b"7,7"]
    (tmp_path / "t.csv").write_bytes(b"\n".join(lines))
    for chunk_bytes in (1, 9, 10**6):
        columns, rows = read_all(Csv(str(tmp_path / "t.csv"), chunk_bytes=chunk_bytes), bad_rows="skip")
        assert columns["a"] == ["0", "2", "5", "7"]
        assert sum(row.skipped for row in rows) == 4
        places = [row.place(i) for row in rows for i in range(row.table.num_rows)]
        assert places == ["line 2", "line 4", "line 7", "line 9"]


def test_a_bad_value_after_a_skipped_line_has_its_own_line_number(tmp_path):
    (tmp_path / "t.csv").write_text("a,y\n1,0\nonly one\n2,0\n3,oops\n")
    pipeline = Pipeline(Csv(str(tmp_path / "t.csv")), [RawFeature("a")], labels=["y"], batch_size=9, bad_rows="skip")
    assert [batch.numbers["a"].tolist() for batch in pipeline] == [[[1.0], [2.0]]]
    assert pipeline.skipped == 2


def test_a_position_in_text_files_with_bad_lines_is_exact(tmp_path):
    lines = [f"{i},{i % 2}" if i % 7 else f"{i}" for i in range(100)]
    for name, part in (("a.csv", lines[:60]), ("b.csv", lines[60:])):
        (tmp_path / name).write_text("\n".join(["item,click", *part]) + "\n")

    def make():
        source, item = Csv(str(tmp_path), chunk_bytes=50), IdFeature("item", num_buckets=100, embedding_dim=4)
        return Pipeline(source, [item], labels=["click"], batch_size=9, shuffle_rows=20, bad_rows="skip", ahead=0)

    whole = make()
    positions, batches = [whole.position()], []
    for batch in whole:
        positions.append(whole.position())
        batches.append(batch.ids["item"].tolist())
    assert sorted(item for batch in batches for item in batch) == [i for i in range(100) if i % 7]
    assert whole.skipped == 15
    for i, position in enumerate(positions):
        again = make()
        again.restore(position)
        assert [batch.ids["item"].tolist() for batch in again] == batches[i:]


@hypothesis.given(st.lists(st.sampled_from([b"1", b",", b"\n", b"\r", b'"', b"x", b"\xff", b"-7", b"1.5", b"\x00"])))
@hypothesis.settings(max_examples=150, deadline=None)
def test_any_bytes_give_rows_or_one_line(tmp_path_factory, pieces):
    file = tmp_path_factory.mktemp("fuzz") / "t.csv"
    file.write_bytes(b"item,click\n" + b"".join(pieces))
    item = IdFeature("item", num_buckets=5, embedding_dim=4)
    for bad_rows, newlines in itertools.product(("error", "skip"), (False, True)):
        said = str(file)
        try:
            source = Csv(str(file), chunk_bytes=7, newlines_in_values=newlines)
            for batch in Pipeline(source, [item], labels=["click"], batch_size=3, bad_rows=bad_rows, ahead=0):
                assert ((batch.ids["item"] >= -1) & (batch.ids["item"] < 5)).all()
        except DataError as error:
            said = str(error)
        assert said.startswith(str(file))
        assert "\n" not in said


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


# --- published layouts -----------------------------------------------------------------------------------------------

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
    (batch,) = Pipeline(source, source.features(1000, 8), labels=["label"], batch_size=2)
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
    (batch,) = Pipeline(source, source.features(), batch_size=2)
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
    (batch,) = Pipeline(source, features, labels=[Label("liked", "rating", at_least=4)], batch_size=2)
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


# --- generated clicks ------------------------------------------------------------------------------------------------


def test_click_log_and_its_parquet_file_are_the_same(tmp_path):
    log = ClickLog(impressions=250, fields=3, ids=50, chunk_rows=100, counts=2)
    write_clicks(log, tmp_path / "clicks.parquet")
    generated, _ = read_all(log)
    assert read_all(Parquet(str(tmp_path / "clicks.parquet")))[0] == generated
    assert pq.read_metadata(tmp_path / "clicks.parquet").num_row_groups == 3
    truth = log.truth.batch(1, 100)
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
    (batch,) = Pipeline(source, source.features(10**6, 4), labels=["label"], batch_size=30)
    (truth,) = Pipeline(log, log.features(4), labels=["label"], batch_size=30)
    assert batch.labels["label"].tolist() == truth.labels["label"].tolist()
    for i in range(13):
        np.testing.assert_array_equal(batch.numbers[f"count_{i + 1}"], truth.numbers[f"count_{i}"])
    for i in range(26):
        ids, hashed = truth.ids[f"id_{i}"].tolist(), batch.ids[f"category_{i + 1}"].tolist()
        assert len(set(zip(ids, hashed, strict=True))) == len(set(ids)) == len(set(hashed))
    with pytest.raises(ValueError, match="Criteo's format has 13 counts and 26 fields, got 0 and 8"):
        write_criteo(ClickLog(impressions=5), tmp_path / "x.txt")


# --- vocabularies ----------------------------------------------------------------------------------------------------


def test_vocabularies_count_all_columns_in_one_pass(tmp_path):
    rng = np.random.default_rng(0)
    words = rng.integers(0, 30, 1000)
    lists = [list(map(str, rng.integers(0, 5, n))) for n in rng.integers(0, 3, 1000)]
    table = pa.table({"word": words, "tags": lists, "joined": ["|".join(row) for row in lists]})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=64)
    built = build_vocabularies(
        Parquet(str(tmp_path / "t.parquet")), {"word": None, "tags": None, "joined": "|"}, min_count=30, max_words=20
    )
    values, counts = np.unique(words, return_counts=True)
    order = sorted(zip(-counts, map(str, values), strict=True))
    expected = [(word, -count) for count, word in order if -count >= 30][:20]
    assert list(zip(built["word"].vocabulary.words, built["word"].counts, strict=True)) == expected
    assert built["word"].distinct == 30
    assert built["tags"].counts == built["joined"].counts
    assert built["tags"].vocabulary.words == built["joined"].vocabulary.words
    assert built["tags"].missing == built["joined"].missing == sum(not row for row in lists)


def test_a_built_vocabulary_serves_a_feature(tmp_path):
    source = Tables({"city": ["Oslo", "Rome", "Rome", None, "Bern"]})
    path, counted = write_vocabularies(source, ["city"], tmp_path / "words", min_count=2)["city"]
    assert path == tmp_path / "words" / "city.txt"
    assert (counted.counts, counted.distinct, counted.missing) == ((2,), 3, 1)
    assert Vocabulary.load(path).words == ("Rome",)
    feature = IdFeature("city", vocabulary=str(path), embedding_dim=4)
    (batch,) = Pipeline(source, [feature], batch_size=5)
    assert batch.ids["city"].tolist() == [1, 0, 0, -1, 1]


def test_merging_counts_often_changes_nothing(monkeypatch):
    source = Tables({"x": [f"w{i % 37}" for i in range(500)]}, chunk_rows=20)
    whole = build_vocabularies(source, ["x"])["x"]
    monkeypatch.setattr("sparrow.data.counting._MERGE_ROWS", 10)
    merged = build_vocabularies(source, ["x"])["x"]
    assert (merged.vocabulary.words, merged.counts) == (whole.vocabulary.words, whole.counts)
    assert sum(whole.counts) == 500


def test_a_split_source_has_the_rows_of_its_source():
    inner = Tables({"both": ["red:7", "blue:1", "red:2"]})
    opened, split = inner.open(["both"]), Split(inner, "both", ":", into=("color", "size")).open(["size"])
    assert (split.num_rows, split.num_chunks) == (opened.num_rows, opened.num_chunks) == (3, 1)
    assert split.fingerprint == opened.fingerprint


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
