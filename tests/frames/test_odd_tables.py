"""Odd tables: types, names and targets of all kinds, few rows. The guess works, or one sentence gives the reason."""

import datetime
import decimal
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sparrow as sp
from sparrow import config as configs
from sparrow.cli import main
from sparrow.config import ConfigError
from sparrow.data import DataError, Problems
from sparrow.frames import first_config

ROWS = 60
USERS = np.arange(ROWS) % 7


def odd_types():
    """Columns of every type that a Parquet file has."""
    day = datetime.datetime(2024, 1, 1)
    return {
        "when": pa.array([day + datetime.timedelta(hours=i) for i in range(ROWS)]),
        "day": pa.array([day.date()] * ROWS),
        "wait": pa.array([datetime.timedelta(seconds=i) for i in range(ROWS)]),
        "price": pa.array([decimal.Decimal(i).scaleb(-2) for i in range(ROWS)], pa.decimal128(12, 2)),
        "address": pa.array([{"city": "Rome", "geo": {"lat": 1.0}}] * ROWS),
        "props": pa.array([[("a", 1)]] * ROWS, pa.map_(pa.string(), pa.int64())),
        "is_new": pa.array([None if i % 3 == 2 else bool(i % 2) for i in range(ROWS)]),
        "nothing": pa.nulls(ROWS),
        "user.id": USERS,
        "größe (cm)": np.linspace(150, 190, ROWS),
        "カテゴリ 😀": pa.array([["犬", "猫", "鳥\n"][i % 3] for i in range(ROWS)]).dictionary_encode(),
        "big": np.arange(ROWS, dtype=np.uint64) * np.uint64(10**17) + np.uint64(2**62),
        "half": np.linspace(-1, 1, ROWS).astype(np.float16),
        "blob": pa.array([bytes([i % 5]) for i in range(ROWS)]),
        "click": pa.array([bool(i % 2) for i in range(ROWS)]),
    }


def test_all_types_are_features_or_left_out(tmp_path):
    path = tmp_path / "types.parquet"
    pq.write_table(pa.table(odd_types()), path)
    text = first_config(path)
    assert 'vocabulary: [犬, 猫, "鳥\\n"]' in text
    made = configs.loads(text)
    names = {feature.name for feature in made.data.features}
    assert names == {"price", "is_new", "user.id", "größe (cm)", "カテゴリ 😀", "big", "half", "blob"}
    batch = next(iter(configs.train_pipeline(made)))
    assert np.isfinite(batch.numbers["big"]).all()
    assert abs(batch.numbers["price"]).max() < 2


def days(unit):
    return pa.array(np.arange(ROWS) * 86_400_000_000, pa.timestamp("us")).cast(unit)


CLICKS = {"user": USERS, "click": np.arange(ROWS) % 2}
SENTENCES = {
    "integers of 70 bits": (
        {**CLICKS, "big": [2**70 + i for i in range(ROWS)]},
        {},
        "an integer has more than 64 bits",
    ),
    "an empty name": ({**CLICKS, "": USERS}, {}, "a column has an empty name; give it one"),
    "a target of no name": (CLICKS, {"target": 3}, "target must be the name of a column, or a list of names, got 3"),
    "features as a list": (CLICKS, {"features": ["user"]}, "features must be a mapping from columns"),
    "held out by time": ({**CLICKS, "t": days(pa.timestamp("s"))}, {"evaluate_by": "t"}, "the column holds timestamp"),
    "held out by day": ({**CLICKS, "t": days(pa.date32())}, {"evaluate_by": "t"}, "the column holds date32"),
    "held out by lists": ({**CLICKS, "t": [[1]] * ROWS}, {"evaluate_by": "t"}, "the column holds list"),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_what_cannot_be_is_one_sentence(name):
    data, options, why = SENTENCES[name]
    with pytest.raises((ConfigError, DataError), match=why) as raised:
        sp.guess(data, **{"target": "click", **options})
    assert "\n" not in str(raised.value)


def test_periods_and_intervals_of_pandas_are_left_out():
    frame = pd.DataFrame(CLICKS)
    frame["month"] = pd.period_range("2020-01", periods=ROWS, freq="M")
    frame["part"] = pd.arrays.IntervalArray.from_breaks(np.arange(ROWS + 1))
    lines = "\n".join(sp.guess(frame, "click").lines())
    assert lines.count("convert it to strings or numbers") == 2
    for name in ("month", "part"):
        with pytest.raises(ConfigError, match=f"features\\['{name}'\\]: extension.* cannot be a feature"):
            sp.guess(frame, "click", features={name: "id"})


def test_ids_beyond_63_bits_and_a_line_break_in_a_name():
    """They train: ids of a vocabulary are compared by all of their 64 bits."""
    ids = np.arange(ROWS, dtype=np.uint64) % np.uint64(5) + np.uint64(2**63)
    run = sp.fit({**CLICKS, "big\nid": ids}, "click", epochs=1, stream=io.StringIO())
    feature = next(one for one in run.config.data.features if one.name == "big\nid")
    assert feature.vocabulary == tuple(2**63 + i for i in range(5))
    batch = feature.convert(pa.RecordBatch.from_pydict({"big\nid": ids}), Problems(ROWS))
    assert batch.tolist() == (np.arange(ROWS) % 5).tolist()


def rows_of(path, columns, separator=","):
    rows = zip(*columns.values(), strict=True)
    lines = [separator.join(map(str, row)) + "\n" for row in (columns, *rows)]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_a_text_file_of_other_separators(tmp_path):
    path = rows_of(
        tmp_path / "a.csv", {"user_id": USERS, "x": [f"{i},5" for i in range(ROWS)], "label": USERS % 2}, ";"
    )
    text = first_config(path)
    assert configs.loads(text).data.train.separator == ";"
    assert "# x: left out: numbers with a decimal comma; write them with a point" in text
    assert sp.guess(path, "label").config.data.train.separator == ";"


def test_a_column_called_as_a_wide_table_gets_another_name(tmp_path):
    path = rows_of(tmp_path / "a.csv", {"user": USERS, "user_wide": USERS % 3, "label": USERS % 2})
    made = configs.loads(first_config(path))
    assert [feature.name for feature in made.data.features] == ["user", "user_wide_"]
    sp.runs.Program.of(made)
    assert "user_wide_" in next(iter(configs.train_pipeline(made))).ids


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (USERS % 3, "a number, by l2; for 3 classes, choose the loss softmax_cross_entropy"),
        (USERS % 2 * 2 - 1, "a number, by l2; for yes or no, convert it to 0 and 1"),
        (-1.5 * USERS, "a number, by l2"),
        (USERS % 5 + 1, "a number, by l2"),
    ],
)
def test_targets_that_can_be_read_in_two_ways(tmp_path, target, words):
    path = rows_of(tmp_path / "a.csv", {"user": USERS, "target": target})
    assert f"    # {words}\n" in first_config(path)


def test_classes_train(tmp_path):
    path, made = rows_of(tmp_path / "a.csv", {"user": USERS, "target": USERS % 3}), tmp_path / "made.yaml"
    assert main(["init", str(path), str(made), "--loss", "softmax_cross_entropy"]) == 0
    assert sp.runs.Program.of(configs.load(made)).config.model.architecture.num_classes == 3


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"user": [], "label": []}, "the data holds no rows"),
        (
            {"user": USERS, "label": [1] * ROWS},
            "target 'label' is 1 in every row; choose one with several values",
        ),
        ({"label": USERS % 2}, "there is no column besides the target"),
        ({"one": [1] * ROWS, "label": USERS % 2}, "no column can be a feature: 'one' is left out: it holds one value"),
        ({"user": USERS, "label": ["yes", "no"] * (ROWS // 2)}, "target 'label' must hold numbers, got string"),
    ],
)
def test_tables_that_teach_nothing_get_one_sentence(tmp_path, columns, sentence):
    with pytest.raises(DataError, match=sentence):
        first_config(rows_of(tmp_path / "a.csv", columns))


def test_text_of_another_encoding_is_named(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"city,label\n" + b"M\xfcnchen,1\nK\xf6ln,0\n" * 9)
    with pytest.raises(DataError, match=r"line 2: byte 0xfc is not utf8 text"):
        first_config(tmp_path / "a.csv")


def test_a_frame_of_one_value_teaches_nothing():
    with pytest.raises(ConfigError, match="target 'y' is 0 in every row"):
        sp.guess({"user": USERS, "y": USERS * 0}, "y")
