"""The watermark of a stream, and late rows: judged by chunks in their order, by policy, the same when resumed."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow.data import Converter, Flight, Follow, IdFeature
from sparrow.feed import Batching, EventTime, Pipeline, Watermark

FEATURES = [IdFeature("item", num_buckets=1000, embedding_dim=4)]


def after(chunks, **held):
    """The watermark after each chunk: its partition, the others, and its times."""
    watermark, found = Watermark(EventTime("time"), held), []
    for partition, others, times in chunks:
        watermark.passed(Flight(partition, tuple(others)), np.array(times, np.int64))
        found.append(watermark.value)
    return found


def test_the_partition_that_is_furthest_behind_holds_the_watermark():
    chunks = [("a", "ab", [10, 15]), ("b", "ab", [7]), ("b", "ab", [30]), ("a", "ab", [12]), ("a", "ab", [40])]
    assert after(chunks) == [None, 7, 15, 15, 30]


def test_an_idle_partition_does_not_hold_it_and_the_watermark_never_goes_back():
    chunks = [("a", "ab", [10]), ("b", "ab", [10]), ("a", "ab", [50]), ("a", "a", [51]), ("b", "ab", [12])]
    assert after(chunks) == [None, 10, 10, 51, 51]


def test_a_file_that_waits_holds_it():
    """While an older file waits, its rows are not late, whatever was read before."""
    watermark = Watermark(EventTime("time", after=0))
    assert watermark.passed(Flight("1", least=20), np.array([10, 90])) is None
    assert watermark.value == 20
    assert watermark.passed(Flight("2", least=80), np.array([20, 70])) is None
    assert watermark.value == 70
    assert watermark.passed(Flight("3"), np.array([], np.int64)) is None
    assert watermark.value == 70


def put(folder, name, times):
    folder.mkdir(exist_ok=True)
    items = list(range(len(times)))
    table = pa.table({"item": [10 * name + i for i in items], "click": [i % 2 for i in items], "time": times})
    pq.write_table(table, folder / f".{name}.parquet", row_group_size=4)
    (folder / f".{name}.parquet").rename(folder / f"{name}.parquet")


def pipeline(folder, policy="train", **options):
    source = Follow(path=f"{folder}/*.parquet", poll_seconds=0.01, end_idle_seconds=0.1)
    letters = str(folder / "letters.jsonl") if policy == "dead_letter" else None
    batching = Batching(3, event_time=EventTime("time", 10, policy), dead_letters=letters, bad_rows="skip", **options)
    return Pipeline(source, Converter(FEATURES, ["click"], times=["time"]), batching)


def items_of(made):
    return [item for batch in made for item in batch.ids["item"][: batch.examples].tolist()]


@pytest.fixture
def folder(tmp_path):
    put(tmp_path / "data", 1, [100, 101, 102, 110])
    put(tmp_path / "data", 2, [120, 99, 100, 130, None, 119, 95, 121])  # late from the watermark 110 on: 99
    put(tmp_path / "data", 3, [90, 131])
    return tmp_path / "data"


ALL = [10, 11, 12, 13, 20, 21, 22, 23, 25, 26, 27, 30, 31]
LATE = [21, 25, 26, 30]


@pytest.mark.parametrize("policy", ["train", "drop", "dead_letter"])
@pytest.mark.parametrize("ahead", [0, None])
def test_policies(folder, policy, ahead):
    made = pipeline(folder, policy, ahead=ahead)
    assert items_of(made) == (ALL if policy == "train" else [item for item in ALL if item not in LATE])
    assert (made.late, made.skipped) == (4, 1)
    last = 131 if policy == "train" else 130  # else the last batch ends with its row group
    assert made.position()["stream"]["watermark"] == last
    if policy == "dead_letter":
        held = [json.loads(line) for line in (folder / "letters.jsonl").read_text().splitlines()]
        found = [(one["row"]["item"], one["reason"]) for one in held]
        why = "came late: the stream has rows of all times before {}"
        late = [(21, why.format(100)), (25, why.format(120)), (26, why.format(120)), (30, why.format(120))]
        assert sorted(own for own in found if own[0] != 24) == sorted(late)
        assert all(why.format(120) != reason for item, reason in found if item == 24)
        places = {one["row"]["item"]: one["place"] for one in held}
        assert (places[21], places[25]) == ("row 1", "row 5")


@pytest.mark.parametrize("shuffle", [0, 6])
def test_a_resumed_run_leaves_out_the_same_rows(folder, shuffle):
    options = {"shuffle_rows": shuffle, "seed": 3}
    first, batches, positions = pipeline(folder, "drop", **options), [], []
    for batch in first:
        batches.append(batch.ids["item"][: batch.examples].tolist())
        positions.append(json.loads(json.dumps(first.position())))
    for number, position in enumerate(positions):
        again = pipeline(folder, "drop", **options)
        again.restore(position)
        assert [batch.ids["item"][: batch.examples].tolist() for batch in again] == batches[number + 1 :]
        assert again.late == first.late == 4
        assert again.position()["stream"] == first.position()["stream"]


def test_files_in_the_order_of_time_hold_the_watermark(tmp_path):
    """Two producers write the same hour: the rows of the second file are not late."""
    put(tmp_path / "data", 1, [100, 130, 190])
    put(tmp_path / "data", 2, [101, 140, 180])
    for column, late in (("time", 0), (None, 2)):
        source = Follow(path=f"{tmp_path}/data/*.parquet", time_column=column, end_idle_seconds=0.1)
        columns = Converter(FEATURES, ["click"], times=["time"])
        made = Pipeline(source, columns, Batching(3, event_time=EventTime("time", 20)))
        assert len(items_of(made)) == 6
        assert made.late == late
