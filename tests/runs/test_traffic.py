"""Traffic: counts are right, their errors are as small as said, they cost no more than allowed, and they survive."""

import dataclasses
import io
import json

import numpy as np
import pytest

import sparrow as sp
from sparrow import runs
from sparrow.data import Tables
from sparrow.runs.parts.recording import Recorder
from sparrow.runs.recorded.row_counts import EXACT_ROWS, ExactCounts, HottestCounts, IdCounts, rows_counted
from sparrow.runs.recorded.traffic import Traffic, count
from tests.runs.cases import case


def batches(rows, number=30, size=2000, seed=0):
    """Skewed ids: a few rows get most lookups."""
    rng = np.random.default_rng(seed)
    return [np.unique((rng.zipf(1.3, size) * 7919) % rows, return_counts=True) for _ in range(number)]


def test_bounded_counts_are_as_good_as_they_say():
    rows = 50_000
    exact, bounded = ExactCounts(rows), HottestCounts(rows, capacity=500)
    for batch in batches(rows):
        exact.add(*batch)
        bounded.add(*batch)
    assert (bounded.touched, bounded.lookups) == (exact.touched, exact.lookups)  # never an estimate
    true = dict(zip(*(array.tolist() for array in exact.hottest()), strict=True))
    ids, counts = bounded.hottest()
    assert len(ids) <= 500
    assert 0 < bounded.error <= bounded.lookups / 500
    short = np.array([true[row] - found for row, found in zip(ids.tolist(), counts.tolist(), strict=True)])
    assert short.min() >= 0
    assert short.max() <= bounded.error
    assert ids[:10].tolist() == exact.hottest()[0][:10].tolist()
    missed = set(true) - set(ids.tolist())
    assert max(true[row] for row in missed) <= bounded.error


@pytest.mark.parametrize("rows", [EXACT_ROWS, EXACT_ROWS + 1])
def test_states_go_on_where_they_were(rows):
    whole, first, second = rows_counted(rows), rows_counted(rows), rows_counted(rows)
    made = batches(rows, number=6)
    for index, batch in enumerate(made):
        whole.add(*batch)
        if index < 3:
            first.add(*batch)
    second.restore(first.state())
    for batch in made[3:]:
        second.add(*batch)
    assert (second.lookups, second.touched, second.error) == (whole.lookups, whole.touched, whole.error)
    assert all(np.array_equal(a, b) for a, b in zip(second.hottest(), whole.hottest(), strict=True))


def embedder():
    table = sp.TableSpec(name="items", vocabulary_size=100, embedding_dim=2, optimizer=sp.rules.SGD(0.1))
    other = sp.TableSpec(name="users", vocabulary_size=50, embedding_dim=2, optimizer=sp.rules.SGD(0.1))
    features = {"seen": table, "item": table, "user": other}
    specs = [sp.FeatureSpec(name=name, table_spec=spec, invalid_ids="ignore") for name, spec in features.items()]
    return sp.Embedder(specs)


def test_features_of_a_table_count_together_and_ignored_ids_do_not():
    emb = embedder()
    counted = count(emb, emb.pack({"seen": [[3, 99], [], [3, -1]], "item": [3, 100, 0], "user": [49, -1, 0]}))
    assert [array.tolist() for array in counted["items"]] == [[0, 3, 99], [1, 3, 1]]
    assert [array.tolist() for array in counted["users"]] == [[0, 49], [1, 1]]


def test_ids_of_dynamic_tables_are_counted_as_they_come(tmp_path):
    tables = [
        sp.TableSpec(name=name, vocabulary_size=9, embedding_dim=2, optimizer=sp.rules.SGD(0.1), dynamic=sp.Dynamic())
        for name in ("a", "b")
    ]
    emb = sp.Embedder([sp.FeatureSpec(name=f"of_{table.name}", table_spec=table) for table in tables])
    counted = count(emb, emb.pack({"of_a": [[-1, 2**63 - 1], [], [-1]], "of_b": [5, 5, 0]}))
    assert [array.tolist() for array in counted["a"]] == [[-1, 2**63 - 1], [2, 1]]
    assert [array.tolist() for array in counted["b"]] == [[0, 5], [1, 2]]
    features = [{"kind": "id", "name": "word", "embedding_dim": 4, "dynamic": {"rows": 50}}]
    words = Tables({"word": ["red", "blue", "red", "red"] * 64, "label": [1.0, 0.0, 0.0, 1.0] * 64})
    architecture = {"name": "deepfm", "deep": {"hidden_units": [4]}}
    model = {"architecture": architecture, "groups": {"wide": ["word"], "deep": ["word"]}}
    given = {"data": {"train": words, "features": features}, "model": model}
    options = ("train.traffic=1", "train.tensorboard=false", "train.steps=1")
    runs.train(case(*options, **given), tmp_path, stream=io.StringIO())
    table = json.loads((tmp_path / "traffic.json").read_text())["tables"]["word"]
    assert (table["words"], [times for _, times in table["hottest"]]) == (["red", "blue"], [192, 64])
    assert table["touched"] == 2


def test_the_number_of_ids_is_nearly_right():
    counts = IdCounts(20_000)
    ids = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 30_000)
    counts.add(np.unique(ids), np.ones(30_000, np.int64))
    assert abs(counts.touched - 30_000) < 600


def test_no_ids_at_all():
    emb = embedder()
    traffic = Traffic(emb, 1.0)
    traffic.add(traffic.sample(emb.pack({"seen": [[]], "item": [-1], "user": [-1]})))
    items = traffic.summary()["tables"]["items"]
    assert (items["touched"], items["hottest"], items["hot"]["lookups"]) == (0, [], 0)


class Clock:
    """Counting takes ``cost`` seconds, and a batch comes every second."""

    def __init__(self, cost):
        self.now, self.cost, self.calls = 0.0, cost, 0

    def __call__(self):
        self.now += self.cost
        return self.now


def test_counting_takes_no_more_than_its_share():
    emb = embedder()
    packed = emb.pack({"seen": [[3]], "item": [3], "user": [4]})
    clock = Clock(cost=0.005)
    traffic = Traffic(emb, 0.01, clock)
    for _ in range(1000):
        traffic.add(traffic.sample(packed))
        clock.now += 1.0
    assert traffic.batches == 1000
    # A batch costs a hundredth of a second, half to count and half to add: one in every batch would be a full share.
    assert 900 < traffic.counted <= 1000
    clock = Clock(cost=0.05)
    traffic = Traffic(emb, 0.01, clock)
    for _ in range(1000):
        traffic.add(traffic.sample(packed))
        clock.now += 1.0
    assert 90 < traffic.counted < 130


def test_a_resumed_run_has_the_traffic_of_one_that_never_stopped(tmp_path):
    quiet = {"stream": io.StringIO()}
    options = ["train.traffic=1", "data.evaluate=null", "train.tensorboard=false"]
    runs.train(case(*options, "train.steps=6"), tmp_path / "whole", **quiet)
    runs.train(case(*options, "train.steps=3"), tmp_path / "parts", **quiet)
    runs.train(case(*options, "train.steps=6"), tmp_path / "parts", resume=True, **quiet)
    whole, parts = (json.loads((tmp_path / name / "traffic.json").read_text()) for name in ("whole", "parts"))
    assert whole["batches"] == 6
    assert whole == parts
    environment = json.loads((tmp_path / "parts" / "environment.json").read_text())
    assert [(session["step"], session["ended"]) for session in environment["sessions"]] == [
        (0, "finished"),
        (3, "finished"),
    ]
    assert "once, from step 3" in (tmp_path / "parts" / "report.html").read_text()


def test_traffic_can_be_switched_off(tmp_path):
    off = runs.Program.of(case("train.traffic=0"))
    recorder = Recorder(off, tmp_path)
    assert recorder.kept == {}
    on = Recorder(dataclasses.replace(off, config=case()), tmp_path)
    assert list(on.kept) == ["traffic"]
