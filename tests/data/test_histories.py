"""Histories from plain logs: order, splits, lengths, missing values."""

import numpy as np
import pyarrow as pa
import pytest

from sparrow.data import DataError, Histories, Tables

LOG = {
    "user": ["b", "a", "b", "a", "a", "c", "b"],
    "item": [20, 12, 21, 10, 11, 30, 22],
    "time": [4, 30, 5, 10, 20, 7, 6],
}
"""Of a: 10, 11, 12. Of b: 20, 21, 22. Of c: 30 alone."""


def rows(columns=("user", "item", "item_history"), log=LOG, **options):
    options = {"time": "time", **options}
    reader = Histories(Tables(log), "user", "item", **options).open(list(columns))
    assert reader.num_rows == sum(reader.read(chunk, "error").table.num_rows for chunk in range(reader.num_chunks))
    return sorted(map(tuple, reader.read(0, "error").table.to_pandas().map(_plain).to_numpy()), key=str)


def _plain(value):
    return list(value) if isinstance(value, np.ndarray) else value


def test_leave_one_out():
    assert rows(part="train") == [("a", 11, [10]), ("b", 21, [20])]
    assert rows(part="evaluate") == [("a", 12, [10, 11]), ("b", 22, [20, 21])]


def test_two_are_left_out_and_the_older_is_evaluated_on():
    assert rows(part="train", last=2) == []
    assert rows(part="evaluate", last=2) == [("a", 11, [10]), ("b", 21, [20])]
    assert rows(part="train", last=0) == [("a", 12, [10, 11]), ("b", 22, [20, 21])]


def test_a_row_for_each_event():
    assert rows(part="train", rows="event") == [("a", 10, []), ("a", 11, [10]), ("b", 20, []), ("b", 21, [20])]


def test_the_newest_events_of_all_are_held_out():
    # times 10, 20 and 30: those of a
    assert rows(part="evaluate", newest=0.3) == [("a", 11, [10]), ("a", 12, [10, 11])]
    assert rows(part="train", newest=0.3) == [("b", 22, [20, 21])]


def test_other_columns_lengths_and_the_order_of_rows():
    found = rows(("item", "time", "time_history", "item_history"), part="train", last=0, max_length=1)
    assert found == [(12, 30, [20], [11]), (22, 6, [5], [21])]
    assert rows(("item", "item_history"), part="train", last=0, time=None) == [(11, [12, 10]), (22, [20, 21])]


def test_missing_values():
    log = {**LOG, "item": pa.array([20, 12, None, 10, 11, 30, 22])}
    with pytest.raises(DataError, match=r"no value in one of the columns user, item, time; set data\.bad_rows"):
        rows(log=log)
    assert rows(log=log, last=0, bad_rows="skip") == [("a", 12, [10, 11]), ("b", 22, [20])]
    with pytest.raises(DataError, match="itme"):
        rows(("itme_history",))


def test_the_same_log_is_read_once_and_a_changed_one_again():
    first = Histories(Tables(LOG), "user", "item", "time").open(["item_history"])
    again = Histories(Tables({**LOG, "item": [1, 2, 3, 4, 5, 6, 7]}), "user", "item", "time").open(["item_history"])
    assert first.fingerprint != again.fingerprint
