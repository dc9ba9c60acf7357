"""Batches of many sizes: a run compiles a handful of programs, whatever it reads, and keeps what it has learned."""

import io
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.data import Tables
from sparrow.runs.parts.reporting import status_bytes
from sparrow.runs.step import compiling
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

ROWS, BATCH = 64_000, 64
DIMS = {"a": 2, "b": 3, "c": 4}


@pytest.fixture(scope="module")
def heavy(tmp_path_factory):
    """Three ragged features whose lengths have a heavy tail; the file's second half is as the first."""
    rng = np.random.default_rng(0)
    columns = {"label": rng.integers(0, 2, ROWS).astype(np.float32)}
    for name in DIMS:
        lengths = np.minimum(rng.pareto(1.0, ROWS), 2000).astype(np.int32)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        columns[name] = pa.ListArray.from_arrays(offsets, rng.integers(0, 50, offsets[-1]).astype(np.int32))
    path = tmp_path_factory.mktemp("heavy") / "rows.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=8192)
    return path


def config(path, *overrides):
    features = [{"kind": "id", "name": name, "num_buckets": 50, "embedding_dim": dim} for name, dim in DIMS.items()]
    return case(
        f"train.batch_size={BATCH}",
        "train.traffic=0",
        "train.log_every_steps=1000",
        *overrides,
        data={"train": {"name": "parquet", "path": str(path)}, "features": features},
        model={
            "architecture": {"name": "multi_tower", "towers": [{"input": "all"}]},
            "groups": {"all": list(DIMS)},
        },
        tasks={"click": {"label": "label", "losses": ["binary_cross_entropy"]}},
    )


def trained(*arguments, **options):
    stream = io.StringIO()
    result = runs.train(*arguments, stream=stream, **options)
    return result, re.findall(r"compile training program (\d+)", stream.getvalue())


@pytest.mark.slow
def test_a_thousand_heavy_tailed_batches(heavy, monkeypatch):
    held = []
    monkeypatch.setattr(compiling.Compiled, "__call__", _watched(compiling.Compiled.__call__, held))
    result, programs = trained(config(heavy, "train.steps=1000"))
    assert result.steps == 1000
    assert programs == [str(n) for n in range(2, len(programs) + 2)]
    assert 1 <= len(programs) < 8
    assert held[-1] - held[300] < 64 << 20


def _watched(call, held):
    def wrapper(self, *arguments):
        held.append(status_bytes("VmRSS") or 0)
        return call(self, *arguments)

    return wrapper


def test_micro_batches_have_one_shape(heavy):
    """The sizes of one step's batches do not multiply, and accumulating them is what it was."""
    _, alone = trained(config(heavy, "train.steps=120"))
    result, programs = trained(config(heavy, "train.steps=40", "train.accumulate=3"))
    assert result.steps == 40
    assert len(programs) <= len(alone)


def test_a_resumed_run_has_the_sizes_of_one_that_never_stopped(heavy, tmp_path):
    whole, programs = trained(config(heavy, "train.steps=40"), tmp_path / "whole")
    _, before = trained(config(heavy, "train.steps=25"), tmp_path / "parts")
    parts, after = trained(config(heavy, "train.steps=40"), tmp_path / "parts", resume=True)
    assert_same_bits(whole.state, parts.state)
    assert len(programs) == len(before) + len(after)  # the first program of a run is not logged
    once_more, nothing = trained(config(heavy, "train.steps=41"), tmp_path / "parts", resume=True)
    assert once_more.steps == 41
    assert nothing == []


def test_old_programs_are_let_go(monkeypatch):
    monkeypatch.setattr(compiling, "KEPT", 2)
    run = compiling.Compiled("adding", lambda x: x + 1, batch=0)
    run.log = None
    for size in (1, 2, 3, 4, 1):
        assert run(np.ones(size)).shape == (size,)
        assert run._function._cache_size() <= 2
    assert run.programs == 5


def test_prediction_and_evaluation_are_bounded_too(heavy, tmp_path, monkeypatch):
    made = []
    plain = compiling.Compiled.__init__

    def noted(self, *arguments, **options):
        plain(self, *arguments, **options)
        made.append(self)

    monkeypatch.setattr(compiling.Compiled, "__init__", noted)
    table = pq.read_table(heavy).slice(0, 60 * BATCH + 7)
    pq.write_table(table, tmp_path / "some.parquet")
    result, _ = trained(
        config(heavy, "train.steps=2", f"data.evaluate={{name: parquet, path: {tmp_path / 'some.parquet'}}}")
    )
    rows = runs.predict(result.program, result.state, Tables(table), tmp_path / "out.parquet", batch_size=BATCH)
    assert rows == table.num_rows
    assert len(made) == 3
    assert [run._name for run in made] == ["training", "evaluation", "prediction"]
    assert all(run.programs <= 8 for run in made)
