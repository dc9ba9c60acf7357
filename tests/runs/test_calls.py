"""Several steps in one call: the bits, the log and the checkpoints of one step at a time."""

import io

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.runs.loop.staging import calls_of
from tests.runs import test_guards
from tests.runs.cases import NAMES, case
from tests.runs.test_resuming import lines
from tests.runs.test_training import assert_same_bits

# Everything that a run remembers, and something due at many steps. An epoch ends with a step of one short batch.
RICH = (
    "train.batch_size=48",
    "train.accumulate=2",
    "train.ema=0.9",
    "train.loss_scale={init_scale: 1024, growth_interval: 3}",
    "train.sparse_optimizer={name: adam, learning_rate: {name: linear, lr: 0.1, end: 0.001, steps: 20}}",
    "train.log_every_steps=11",
    "train.checkpoint={every_steps: 12}",
    "model.architecture.deep={hidden_units: [8], dropout_ratio: 0.5, use_bn: true}",
    "evaluate={every_steps: 12}",
)


@pytest.fixture(scope="module")
def bags(tmp_path_factory):
    """Rows with bags of ids, longer ones later: the room for ids grows."""
    rng = np.random.default_rng(0)
    rows = 1500
    offsets = np.concatenate([[0], np.cumsum(rng.integers(0, np.where(np.arange(rows) < 1200, 3, 9)))]).astype(np.int32)
    columns = {name: rng.integers(0, 20, rows) for name in NAMES[1:]}
    columns[NAMES[0]] = pa.ListArray.from_arrays(offsets, rng.integers(0, 20, offsets[-1]))
    columns["label"] = rng.integers(0, 2, rows).astype(np.float32)
    path = tmp_path_factory.mktemp("bags") / "rows.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def trained(bags, folder, *overrides, **options):
    stream = io.StringIO()
    loaded = case(*RICH, f"data.train={{name: parquet, path: {bags}}}", "data.shuffle_rows=0", *overrides)
    return runs.train(loaded, folder, stream=stream, **options), stream.getvalue()


@pytest.fixture(scope="module")
def one_by_one(bags, tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return folder, trained(bags, folder, "train.steps=19")[0]


@pytest.mark.parametrize(
    ("backend", "overrides", "steps"),
    [
        ("gpu", ("train.log_every_steps=1000",), 8),
        ("gpu", (), 5),  # a divisor of 100: no step is left before a line of the log
        ("gpu", ("train.log_every_steps=11",), 8),
        ("gpu", ("train.batch_size=65536",), 2),
        ("gpu", ("train.batch_size=65536", "train.accumulate=4"), 1),
        ("gpu", ("train.steps_per_call=3",), 3),
        ("gpu", ("train.pipeline=stale",), 1),
        ("gpu", ("data.train={name: follow, path: 'none/*.parquet'}", "train.steps=null", "train.epochs=1"), 1),
        ("gpu", ("data.time_column=label",), 1),
        ("cpu", (), 1),
    ],
)
def test_the_steps_of_a_call_follow_the_device_and_the_data(backend, overrides, steps, monkeypatch):
    program = runs.Program.of(case("train.log_every_steps=100", "data.evaluate=null", *overrides))
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert program.steps_per_call == steps


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 5])
def test_the_bits_and_the_log_of_one_step_at_a_time(steps, bags, one_by_one, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        "sparrow.runs.loop.loop.calls_of", lambda *given: (made.append(len(c)) or c for c in calls_of(*given))
    )
    folder, alone = one_by_one
    both, _ = trained(bags, tmp_path, "train.steps=19", f"train.steps_per_call={steps}")
    assert sum(made) == 19
    assert set(made) == {1, steps}
    assert_same_bits(alone.state, both.state)
    assert alone.results == both.results
    assert lines(folder) == lines(tmp_path)
    assert sorted(path.name for path in (folder / "checkpoints").iterdir()) == sorted(
        path.name for path in (tmp_path / "checkpoints").iterdir()
    )


@pytest.mark.slow
def test_a_run_resumes_in_the_middle_of_a_call(bags, one_by_one, tmp_path):
    _, alone = one_by_one
    trained(bags, tmp_path, "train.steps=8", "train.steps_per_call=5")
    resumed, said = trained(bags, tmp_path, "train.steps=19", "train.steps_per_call=5", resume=True)
    assert "resumed at step 8" in said
    assert_same_bits(alone.state, resumed.state)


@pytest.mark.slow
def test_the_step_that_is_not_finite_is_found_in_its_call(tmp_path):
    test_guards.written(tmp_path / "bad.parquet", bad=True)
    loaded = test_guards.config(tmp_path / "bad.parquet", "train.steps_per_call=9")
    with pytest.raises(runs.NonFinite, match="step 13: the loss is nan; it was computed from batch 13") as error:
        test_guards.quiet(loaded, tmp_path / "run")
    assert "the checkpoint of step 12 is complete" in str(error.value)
    good = test_guards.quiet(test_guards.config(tmp_path / "bad.parquet", "train.steps=12"))
    _, state = runs.load(tmp_path / "run")
    assert_same_bits(good.state, state)
