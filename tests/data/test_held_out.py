"""Rows held out by time: exact, whatever the chunks; and the section split of a config."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from sparrow import config as configs
from sparrow.data import DataError, HeldOut, Tables
from tests.runs.cases import case


def rows_of(source, column="at"):
    reader = source.open([column])
    return [x for chunk in range(reader.num_chunks) for x in reader.read(chunk, "error").table[column].to_pylist()]


def test_the_newest_rows_are_held_out():
    times = np.random.default_rng(0).permutation(100)
    table = Tables({"at": times, "item": times}, chunk_rows=7)
    train, held = (HeldOut(table, part, share=0.2, time="at") for part in ("train", "evaluate"))
    assert sorted(rows_of(held)) == list(range(80, 100))
    assert sorted(rows_of(train, "item")) == list(range(80))
    assert train.open(["at"]).fingerprint != held.open(["at"]).fingerprint


@pytest.mark.parametrize(
    "times",
    [
        [1.5, None, 3.5, 2.5],
        ["2024-05-01", None, "2024-05-03", "2024-05-02"],
        pa.array([1500, None, 3500, 2500], pa.timestamp("ns")),
        [datetime.date(2024, 5, 1), None, datetime.date(2024, 5, 3), datetime.date(2024, 5, 2)],
    ],
)
def test_times_of_any_kind(times):
    table = Tables(pa.table({"at": times, "item": [0, 1, 2, 3]}))
    assert rows_of(HeldOut(table, "evaluate", share=0.3, time="at"), "item") == [2]
    assert rows_of(HeldOut(table, "train", share=0.3, time="at"), "item") == [0, 1, 3]


def test_times_that_do_not_differ_or_are_none():
    with pytest.raises(DataError, match="all rows have the same time"):
        rows_of(HeldOut(Tables({"at": [4, 4]}), "train", time="at"))
    with pytest.raises(DataError, match="needs times: numbers, timestamps, dates"):
        rows_of(HeldOut(Tables({"at": ["soon", "later"]}), "train", time="at"))


def test_a_split_of_a_config_covers_all_rows_once():
    for split in ("{share: 0.25}", "{by: user, column: id_0, share: 0.5}", "{by: time, column: id_1, share: 0.3}"):
        config = case(f"data.split={split}", "data.evaluate=null")
        data = config.data
        column = {"user": "id_0", "time": "id_1", "random": "label"}[data.split.by]
        parts = [rows_of(part, column) for part in (data.train_rows, data.evaluate_rows)]
        assert sorted(parts[0] + parts[1]) == sorted(rows_of(data.train, column))
        assert all(parts)
        if data.split.by == "user":
            assert not set(parts[0]) & set(parts[1])
        if data.split.by == "time":
            assert max(parts[0]) < min(parts[1])
        assert configs.loads(configs.dumps(config)) == config
        batches = sum(len(batch) for batch in configs.evaluate_pipeline(config))
        assert batches == len(parts[1])


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("{by: time}", "split by time needs column"),
        ("{by: user}", "split by user needs column, or user_column"),
        ("{column: user}", "by random takes no column"),
        ("{share: 1}", "share"),
    ],
)
def test_wrong_splits(split, message):
    with pytest.raises(configs.ConfigError, match=message):
        case(f"data.split={split}")
