"""Files that are followed: which are taken, in which order, once each, and again in the same order."""

import dataclasses
import json
import secrets
import threading
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import Converter, Csv, DataError, Follow, Growing, IdFeature
from sparrow.feed import Batching, Pipeline
from sparrow.files import at
from tests.feed.pipelines import pipeline_of

FEATURES = [IdFeature("item", num_buckets=1000, embedding_dim=4)]


def put(path, items, group=5):
    """Write a file of items under another name, and rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}")
    table = pa.table({"item": items, "click": [i % 2 for i in items]})
    if path.suffix == ".csv":
        partial.write_text("item,click\n" + "".join(f"{i},{i % 2}\n" for i in items))
    else:
        pq.write_table(table, partial, row_group_size=group)
    partial.rename(path)


def followed(folder, end="*.parquet", **options):
    options = {"poll_seconds": 0.01, "end_idle_seconds": 0.1, **options}
    return Follow(path=f"{folder}/{end}", **options)


def items_of(source, size=4, **batching):
    pipeline = pipeline_of(source, FEATURES, ["click"], batch_size=size, **batching)
    return [batch.ids["item"][: batch.examples].tolist() for batch in pipeline]


@pytest.mark.parametrize("end", ["parquet", "csv"])
@pytest.mark.parametrize("ahead", [0, None])
def test_all_rows_once_in_order_of_names(tmp_path, end, ahead):
    put(tmp_path / f"dt=2/a.{end}", range(10, 21))
    put(tmp_path / f"dt=1/b.{end}", range(10))
    made = items_of(followed(tmp_path, f"dt=*/*.{end}"), ahead=ahead)
    assert list(chain(*made)) == list(range(21))
    assert [len(batch) for batch in made] == [4, 4, 4, 4, 4, 1]


def test_files_that_come_while_it_is_read(tmp_path):
    put(tmp_path / "1.parquet", range(10))
    pipeline = pipeline_of(
        followed(tmp_path, end_idle_seconds=None, end_marker=str(tmp_path / "end")), FEATURES, ["click"], batch_size=5
    )
    seen = []
    for batch in pipeline:
        seen += batch.ids["item"].tolist()
        if len(seen) in (10, 20):
            number = len(seen) // 10
            put(tmp_path / f"{number + 1}.parquet", range(10 * number, 10 * number + 10))
        if len(seen) == 30:
            (tmp_path / "end").touch()
    assert seen == list(range(30))


def test_unfinished_files_and_markers(tmp_path):
    put(tmp_path / "day1/1.parquet", range(5))
    (tmp_path / "day1/_SUCCESS").touch()
    put(tmp_path / "day2/1.parquet", range(5, 9))
    assert items_of(followed(tmp_path, "*/*.parquet", marker="_SUCCESS")) == [[0, 1, 2, 3], [4]]
    (tmp_path / "day2/1.parquet.done").touch()
    assert items_of(followed(tmp_path, "*/*", marker="*.done")) == [[5, 6, 7, 8]]
    put(tmp_path / "day2/2.parquet.tmp", range(20, 24))
    assert items_of(followed(tmp_path, "day2/*.parquet*")) == [[5, 6, 7, 8]]


def test_order_by_time(tmp_path):
    put(tmp_path / "a.parquet", range(10, 14))
    put(tmp_path / "b.parquet", range(4))
    assert items_of(followed(tmp_path, time_column="item")) == [[0, 1, 2, 3], [10, 11, 12, 13]]


def test_options_of_the_inner_source(tmp_path):
    (tmp_path / "a.csv").write_text("item;click\n7;1\n8;0\n")
    inner = Csv(f"{tmp_path}/*.csv", separator=";")
    assert items_of(Follow(source=inner, poll_seconds=0.01, end_idle_seconds=0.1)) == [[7, 8]]


def test_rows_are_cut_by_time(tmp_path):
    put(tmp_path / "1.parquet", range(6))
    source = followed(tmp_path, cut_seconds=0.05, end_idle_seconds=None, end_marker=str(tmp_path / "end"))
    pipeline, sizes = pipeline_of(source, FEATURES, ["click"], batch_size=4), []
    for batch in pipeline:
        sizes.append(batch.examples)
        if len(sizes) == 2:
            put(tmp_path / "2.parquet", range(6, 9))
        if len(sizes) == 3:
            (tmp_path / "end").touch()
    assert sizes == [4, 2, 3]


@pytest.mark.parametrize("shuffle", [0, 6])
@pytest.mark.parametrize("has_journal", [True, False])
def test_a_resumed_run_takes_the_same_rows(tmp_path, shuffle, has_journal):
    """Also the files that came out of order, where the journal knows it, and the cuts."""
    folder, journal = tmp_path / "data", tmp_path / "stream.jsonl"
    options = {"batch_size": 4, "shuffle_rows": shuffle, "seed": 3}
    source = followed(folder, cut_seconds=0.05, end_idle_seconds=None, end_marker=str(tmp_path / "end"))
    put(folder / "b.parquet", range(11))
    first = pipeline_of(source, FEATURES, ["click"], **options)
    first.stream.load(journal)
    first.stream.keep(journal)
    batches, positions = [], []
    for batch in first:
        batches.append(batch.ids["item"][: batch.examples].tolist())
        positions.append(json.loads(json.dumps(first.position())))
        if len(batches) == 3:  # after the cut
            put(folder / ("a.parquet" if has_journal else "c.parquet"), range(20, 29))
        if sum(map(len, batches)) == 20:
            (tmp_path / "end").touch()
    assert sorted(chain(*batches)) == [*range(11), *range(20, 29)]
    kept = journal.read_bytes()
    for number, position in enumerate(positions):
        journal.write_bytes(kept)
        again = pipeline_of(source, FEATURES, ["click"], **options)
        if has_journal:
            again.stream.load(journal)
        again.restore(position)
        again.stream.keep(journal)
        rest = [batch.ids["item"][: batch.examples].tolist() for batch in again]
        if has_journal:
            assert rest == batches[number + 1 :]
            assert journal.read_bytes() == kept
        else:  # cuts after the position are not known
            assert sorted(chain(*rest)) == sorted(chain(*batches[number + 1 :]))


def test_a_file_that_was_changed(tmp_path):
    put(tmp_path / "a.parquet", range(10))
    pipeline = pipeline_of(followed(tmp_path), FEATURES, ["click"], batch_size=4)
    next(iter(pipeline))
    position = pipeline.position()
    put(tmp_path / "a.parquet", range(10, 20))
    again = pipeline_of(followed(tmp_path), FEATURES, ["click"], batch_size=4)
    again.restore(position)
    with pytest.raises(DataError, match=r"a.parquet.*was changed after it was trained on"):
        list(again)


def test_damaged_files(tmp_path):
    (tmp_path / "0.parquet").write_bytes(b"\0\1\2\3nothing")
    put(tmp_path / "1.parquet", range(4))
    (tmp_path / "2.parquet").write_bytes(b"\0\1\2\3nothing")
    with pytest.raises(DataError, match=r"0.parquet: is not a Parquet file"):
        items_of(followed(tmp_path))
    pipeline = pipeline_of(followed(tmp_path, bad_files="skip"), FEATURES, ["click"], batch_size=4)
    pipeline.stream.keep(tmp_path / "stream.jsonl")
    assert len(list(pipeline)) == 1
    assert [line for line in pipeline.stream.notes if "left out" in line and "2.parquet" in line]
    assert (tmp_path / "stream.jsonl").read_text().count("left_out") == 2


def test_other_columns_are_refused(tmp_path):
    put(tmp_path / "1.parquet", range(4))
    pq.write_table(pa.table({"item": ["a"], "click": [1]}), tmp_path / "2.parquet")
    with pytest.raises(DataError, match=r"2.parquet.*the column holds string, but int64"):
        items_of(followed(tmp_path))


def test_nothing_comes(tmp_path):
    with pytest.raises(DataError, match="ended before its first rows"):
        items_of(followed(tmp_path))


def test_waits_for_the_first_file(tmp_path):
    def come():
        put(tmp_path / "1.parquet", range(4))
        (tmp_path / "end").touch()

    threading.Timer(0.2, come).start()
    source = followed(tmp_path, end_idle_seconds=None, end_marker=str(tmp_path / "end"))
    assert items_of(source) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "either path or source"),
        ({"path": "a/*.csv", "end_at": "soon"}, "end_at must be a time"),
        ({"path": "a/*.csv", "poll_seconds": 0}, "poll_seconds"),
        ({"path": "a/*.csv", "bad_files": "drop"}, "bad_files"),
    ],
)
def test_wrong_fields(fields, why):
    with pytest.raises(ValueError, match=why):
        Follow(**fields)


@pytest.mark.parametrize("is_followed", [True, False])
def test_dead_letters(tmp_path, is_followed):
    """Every row that is left out is there, with its reason; the others are read."""
    text = "item,click\n1,0\n2\n3,x\n,1\n5,1\n"
    (tmp_path / "a.csv").write_text(text)
    source = followed(tmp_path, "*.csv") if is_followed else Csv(str(tmp_path / "a.csv"))
    letters = tmp_path / "letters.jsonl"
    pipeline = pipeline_of(source, FEATURES, ["click"], batch_size=8, bad_rows="skip", dead_letters=str(letters))
    assert [batch.labels["click"].tolist() for batch in pipeline] == [[0.0, 1.0, 1.0]]
    found = [json.loads(line) for line in letters.read_text().splitlines()]
    assert [(one["place"], one["reason"], one["row"]) for one in found] == [
        ("line 3", "needs 2 columns, got 1", "2"),
        ("line 4", "'x' is not a number", {"item": "3", "click": "x"}),
    ]
    assert pipeline.skipped == 2


@pytest.mark.parametrize("end", ["parquet", "csv"])
def test_times_are_integers_in_any_file(tmp_path, end):
    put(tmp_path / f"a.{end}", [5, 7])
    source, columns = followed(tmp_path, f"*.{end}"), Converter(FEATURES, ["click"], times=["item"])
    (batch,) = Pipeline(source, columns, Batching(4))
    assert batch.keys["item"].tolist() == [5, 7]


def test_files_of_another_store(s3, tmp_path):
    folder = f"{s3}/{secrets.token_hex(4)}"
    put(tmp_path / "1.parquet", range(4))
    put(tmp_path / "2.parquet", range(4, 8))
    at(f"{folder}/dt=1/1.parquet").send(tmp_path / "1.parquet")
    source = followed(folder, "dt=*/*.parquet", end_idle_seconds=None, end_marker=f"{folder}/end")
    pipeline, seen = pipeline_of(source, FEATURES, ["click"], batch_size=4), []
    for batch in pipeline:
        seen.append(batch.ids["item"].tolist())
        file = at(f"{folder}/dt=2/2.parquet") if len(seen) == 1 else at(f"{folder}/end")
        file.send(tmp_path / "2.parquet")
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_limits_of_a_growing_source_of_ones_own():
    """Its class stands for the name that it is not registered by."""

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Own(Growing):
        def open(self, columns):
            raise NotImplementedError

        column_names = open

    assert Own(cut_seconds=1.0).cut_seconds == 1.0
    with pytest.raises(ValueError, match="source 'Own': cut_seconds must be a finite number above 0, got 0"):
        Own(cut_seconds=0.0)
