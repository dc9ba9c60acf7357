"""A run that is resumed gives the bits of one that never stopped."""

import io
import json

import pytest

from sparrow import runs
from tests.runs.cases import case
from tests.runs.test_training import assert_same_bits

# Everything that a run remembers: dropout's keys, batch statistics, the average, a loss scale, metrics, early stopping.
RICH = (
    "train.ema=0.9",
    "train.loss_scale={init_scale: 1024, growth_interval: 3}",
    "train.accumulate=2",
    "train.log_every_steps=3",
    "train.batch_size=128",
    "model.architecture.deep={hidden_units: [8], dropout_ratio: 0.5, use_bn: true}",
    "tasks.click.train_metrics=[auc, {name: decayed_auc}]",
    "evaluate={every_steps: 2, early_stopping: {metric: auc, mode: max, patience: 30}}",
    "train.checkpoint={every_steps: 4, best_by: {metric: auc, mode: max}}",
)


def lines(folder):
    """The log without what a clock says."""
    entries = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    of_the_machine = ("time", "examples_per_second", "waiting_for_data", "host_memory", "device_memory")
    return [{k: v for k, v in entry.items() if k not in of_the_machine} for entry in entries]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, runs.train(case(*RICH, "train.steps=10"), folder, stream=io.StringIO())


@pytest.mark.parametrize(
    ("before", "now", "hint"),
    [
        ("train.steps=4", "train.steps=2", "train.steps = 2"),
        ("train.epochs=2", "train.epochs=1", "train.epochs = 1"),
        ("train.steps=2", "train.steps=3", None),
    ],
)
def test_a_run_that_ends_at_once_gets_a_hint(tmp_path, before, now, hint):
    base = ("train.steps=null",) if "epochs" in before else ()
    runs.train(case(*base, before), tmp_path, stream=io.StringIO())
    stream = io.StringIO()
    runs.train(case(*base, now), tmp_path, resume=True, stream=stream)
    assert ("nothing is left to train" in stream.getvalue()) == (hint is not None)
    if hint is not None:
        assert f"the run is beyond {hint}; repeat the overrides" in stream.getvalue()
        assert str(tmp_path / "config.yaml") in stream.getvalue()


def test_same_bits_and_the_same_log(undisturbed, tmp_path):
    folder, whole = undisturbed
    runs.train(case(*RICH, "train.steps=6"), tmp_path, stream=io.StringIO())
    stream = io.StringIO()
    resumed = runs.train(case(*RICH, "train.steps=10"), tmp_path, resume=True, stream=stream)
    assert "changed: train.steps: was 6, is now 10" in stream.getvalue()
    assert "resumed at step 6 from" in stream.getvalue()
    assert_same_bits(whole.state, resumed.state)
    assert whole.results == resumed.results
    assert lines(folder) == lines(tmp_path)
