"""Several steps in one call: the bits, the log and the checkpoints of one step at a time."""

import io
import threading

import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparrow import runs
from sparrow.feed import Feed, Prepared
from sparrow.feed.feed import MeshLayout
from sparrow.runs.evaluating.evaluation import EvaluationInterrupted, Evaluator
from sparrow.runs.evaluating.predict_files import predict
from sparrow.runs.loop.staging import calls_of
from sparrow.runs.step import calls
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


def judged(bags, file, most, monkeypatch, *overrides):
    """All that evaluation and prediction give with ``most`` batches a call, and the batches of the calls."""
    monkeypatch.setattr(runs.Program, "batches_per_call", lambda *_: most)
    taken = []
    for module in ("evaluation", "predict_files"):
        monkeypatch.setattr(
            f"sparrow.runs.evaluating.{module}.in_calls",
            lambda *given: (taken.append(len(call)) or call for call in calls.in_calls(*given)),
        )
    metrics = "tasks.click.metrics=[auc, exact_auc, {name: grouped_auc, group_by: id_1}]"
    program = runs.Program.of(case(metrics, f"data.evaluate={{name: parquet, path: {bags}}}", *overrides))
    state, evaluator, said = program.init(), Evaluator(program), []
    results = evaluator(state, said.append)
    assert predict(program, state, str(bags), file) == 1500
    return (results, evaluator.curves, evaluator.examples, said, pq.read_table(file).to_pydict()), taken


def test_calls_end_after_each_multiple_and_where_batches_grow():
    """So a line of the log, after each multiple, comes after a call."""
    sizes = [5, 5, 7, 7, 7, 7, 9, 9, 9, 9, 9]
    batches = [Prepared(Feed(np.zeros(size), MeshLayout(), 4), {}, None, 4) for size in sizes]
    made = list(calls.in_calls(iter(batches), 3))
    assert [[len(one.feed.buffer) for one in call] for call in made] == [[5, 5], [7], [7, 7, 7], [9, 9, 9], [9, 9]]
    assert [feed.buffer for feed in calls.filled_up(made[0], 3)] == [batches[i].feed.buffer for i in (0, 1, 1)]


def test_rows_of_padding_are_cut_off_in_each_batch_of_a_call():
    rows = np.arange(24)  # three batches of four examples, two rows each
    assert calls.without_padding(rows, [4, 3], 4, 3).tolist() == list(range(14))
    assert calls.without_padding(rows, [1, 4], 4, 3).tolist() == [0, 1, *range(8, 16)]
    assert calls.without_padding(rows[:0], [0], 0, 3).tolist() == []


@pytest.mark.parametrize("override", ["evaluate.log_every_steps=4", "evaluate.steps=7", "data.threads=2"])
def test_evaluation_and_prediction_with_several_batches_in_a_call(bags, tmp_path, monkeypatch, override):
    """Batches grow on their way, and the last one is short: the numbers of one batch at a time, and its log."""
    options = ("evaluate.batch_size=128", override)
    alone, ones = judged(bags, tmp_path / "one.parquet", 1, monkeypatch, *options)
    both, several = judged(bags, tmp_path / "several.parquet", 8, monkeypatch, *options)
    assert both == alone
    assert set(ones) == {1}
    assert sum(several) == sum(ones)
    assert max(several) == 8
    if "log" in override:
        assert [line.split()[2] for line in alone[3]] == ["4", "8", "12"]


def test_an_evaluation_that_is_interrupted_or_fails_can_be_made_again(bags, monkeypatch):
    program = runs.Program.of(case(f"data.evaluate={{name: parquet, path: {bags}}}", "evaluate.batch_size=128"))
    state, evaluator = program.init(), Evaluator(program)
    asked = []
    expected = evaluator(state, interrupted=lambda: asked.append(None))
    wishes = iter([False] * (len(asked) - 1) + [True])
    with pytest.raises(EvaluationInterrupted):
        evaluator(state, interrupted=lambda: next(wishes))

    def fails(*_):
        raise MemoryError("no memory for rows")

    with monkeypatch.context() as patch:
        patch.setattr(evaluator.scores, "update_host", fails)
        with pytest.raises(MemoryError, match="no memory for rows"):
            evaluator(state)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("sparrow-metrics")]
    assert evaluator(state) == expected
