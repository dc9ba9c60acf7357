"""Bad input of dynamic tables: one line each."""

import io

import jax
import numpy as np
import pyarrow as pa
import pytest

import sparrow as sp
from sparrow import runs
from sparrow.config import ConfigError
from sparrow.data import DataError, Tables
from tests.runs.cases import case

RULE = sp.rules.SGD(0.5)


def embedder(rows=4, **options):
    dynamic = sp.Dynamic(**options) if options else None
    table = sp.TableSpec(name="t", vocabulary_size=rows, embedding_dim=2, optimizer=RULE, dynamic=dynamic)
    return sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])


@pytest.mark.parametrize("ids", [np.array([0.5]), [7.0], [None, 1.5], np.array([True])], ids=str)
def test_ids_that_are_no_integers_are_refused(ids):
    with pytest.raises(TypeError, match=r"feature 'f': ids must be integers[^\n]*$"):
        embedder(unknown="zeros").pack({"f": ids})


@pytest.mark.parametrize("bags", [[[7, None]], [["a", None], ["b"]]], ids=str)
def test_a_missing_id_within_a_bag_is_refused(bags):
    with pytest.raises(ValueError, match="feature 'f': a list of ids contains missing values"):
        embedder(unknown="zeros").pack({"f": pa.array(bags)})


def test_zero_and_the_largest_id_are_ids_and_nulls_are_none():
    emb = embedder(unknown="zeros")
    state = emb.init(jax.random.key(0))
    for column in (pa.array([2**64 - 1, 0, None], pa.uint64()), np.array([0, 2**64 - 1], np.uint64)):
        state, _ = emb.assign(state, emb.pack({"f": column}))
    assert emb.ids(state, "t").ids.tolist() == [2**64 - 1, 0]
    assert emb.held(state, "t").admitted == 2


def test_an_empty_batch_and_a_capacity_of_one():
    emb = embedder(rows=1, unknown="zeros")
    state, _ = emb.assign(emb.init(jax.random.key(0)), emb.pack({"f": np.zeros(0, np.int64)}))
    assert emb.held(state, "t").used == 0
    for id_ in (5, 6):  # one row, which the next id takes
        state, batch = emb.assign(state, emb.pack({"f": np.array([id_, id_])}))
        state = emb.update(state, batch, {"f": np.zeros((2, 2))})
    assert emb.ids(state, "t").ids.tolist() == [6]


@pytest.mark.parametrize(
    ("ids", "rows", "message"),
    [
        (np.array([1.5, 2, 3, 4]), {"rows": 8}, r"row 0, column 'u': 1\.5 is not an integer$"),
        (np.array([1, 2, 3, 4]), {"rows": 1}, r"dynamic: rows must be an integer of at least 2, got 1$"),
        (
            np.array([1, 2, 3, 4]),
            {"rows": 3, "unknown": "zeros"},
            r"one step needs 4 rows .* there are 3;",
        ),
        (np.zeros(0, np.int64), {"rows": 8}, "there are no rows$"),
    ],
    ids=["floats", "one row", "beyond capacity", "no rows"],
)
def test_in_a_config(ids, rows, message):
    data = {
        "train": Tables({"u": ids, "label": np.zeros(len(ids), np.float32)}),
        "features": [{"kind": "id", "name": "u", "embedding_dim": 2, "dynamic": rows}],
    }
    model = {
        "architecture": {"name": "deepfm", "deep": {"hidden_units": [2]}},
        "groups": {"wide": ["u"], "deep": ["u"]},
    }
    with pytest.raises((ConfigError, DataError), match=message) as raised:
        runs.train(case("train.steps=1", "train.batch_size=4", data=data, model=model), stream=io.StringIO())
    assert "\n" not in str(raised.value)
