"""Runs with tables in host memory apart from the device's, with small caches: the bits of other runs."""

import io

import numpy as np
import pytest

from sparrow import runs
from sparrow.embedding import host_memory
from tests.runs.cases import NAMES, case


def config(*overrides):
    clicks = {"name": "clicks", "impressions": 4096, "fields": 3, "ids": 500, "chunk_rows": 1024}
    features = [
        {"kind": "id", "name": NAMES[0], "embedding_dim": 4, "dynamic": {"rows": 300, "admit": 2}},
        *({"kind": "id", "name": name, "num_buckets": 500, "embedding_dim": 4} for name in NAMES[1:]),
    ]
    data = {"train": clicks, "evaluate": {**clicks, "start": 1000}, "shuffle_rows": 2048, "features": features}
    fixed = (
        *("train.batch_size=32", "train.accumulate=2", "train.tensorboard=false", "evaluate={steps: 2}"),
        "model.tables=[{tables: ['.*'], memory: {kind: host, cache: 100}}]",
    )
    return case(*fixed, *overrides, data=data)


def state_of(trained):
    embedder, state = trained.program.embedder, trained.state.optimizer.embedding
    made = {name: np.asarray(embedder.table(state, name)) for name in embedder.tables}
    for name in embedder.tables:
        made |= {f"{name}/{slot}": np.asarray(array) for slot, array in embedder.slots(state, name).items()}
    return made


SKIPS = ("train.precision=float16", "train.loss_scale={init_scale: 1.0e+9}", "train.non_finite=skip")
RECIPES = {
    "calls": ("train.steps_per_call=3", "train.accumulate=1"),
    "calls that accumulate": ("train.steps_per_call=2",),
    "stale": ("train.pipeline=stale",),
    "skipped": SKIPS,
    "skipped in calls": (*SKIPS, "train.steps_per_call=2"),
    "skipped and stale": (*SKIPS, "train.pipeline=stale"),
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_way_to_make_steps_has_the_bits_of_tables_on_the_device(monkeypatch, tmp_path, recipe):
    """Tables with ids that come and go among them; stopped, and resumed with a larger cache."""
    found = []
    for apart in (False, True):
        monkeypatch.setattr(host_memory, "is_apart", lambda apart=apart: apart)
        folder, given = tmp_path / str(apart), RECIPES[recipe]
        runs.train(config("train.steps=6", *given), folder, stream=io.StringIO())
        larger = "model.tables[0].memory.cache=150"
        found.append(runs.train(config("train.steps=10", *given, larger), folder, resume=True, stream=io.StringIO()))
    assert found[0].results == found[1].results
    ours, others = map(state_of, found)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    ids = [one.program.embedder.ids(one.state.optimizer.embedding, NAMES[0]) for one in found]
    np.testing.assert_array_equal(ids[0].ids, ids[1].ids)
    skipped = [int(one.state.optimizer.skipped) for one in found]
    assert skipped[0] == skipped[1]
    assert (skipped[0] > 0) == ("skipped" in recipe)


@pytest.mark.slow
def test_a_run_may_change_to_a_cache_and_back(monkeypatch, tmp_path):
    found = []
    for apart in (False, True):
        monkeypatch.setattr(host_memory, "is_apart", lambda apart=apart: apart)
        runs.train(config("train.steps=8"), tmp_path / str(apart), stream=io.StringIO())
    for apart in (True, False):  # resumed the other way
        monkeypatch.setattr(host_memory, "is_apart", lambda apart=apart: apart)
        folder = tmp_path / str(not apart)
        found.append(runs.train(config("train.steps=12"), folder, resume=True, stream=io.StringIO()))
    assert {stack.apart for stack in found[0].program.embedder.stacks} == {True}
    assert found[0].results == found[1].results
    ours, others = map(state_of, found)
    for name, array in ours.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)
    traffic = found[0].program.embedder.cache_traffic(found[0].state.optimizer.embedding)
    assert 0 < traffic["cache_bytes_out"] < traffic["cache_bytes_in"]
    caches = found[0].state.optimizer.embedding.caches
    assert sum(int(held.slots.totals[:, 1].sum()) for held in caches.values()) > 0
    monkeypatch.setattr(host_memory, "is_apart", lambda: True)
    program, state = runs.load(tmp_path / "True")
    assert runs.Evaluator(program)(state) == found[1].results
