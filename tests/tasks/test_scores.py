"""Metrics that do not fit the predictions of a loss, and the reasons of NaN."""

import dataclasses
import io
import json
import math

import jax.numpy as jnp
import pytest

from sparrow import losses, metrics, runs
from sparrow.config import ConfigError, MetricUse, Task
from sparrow.registry import read
from sparrow.reports import RecordedRun
from sparrow.tasks import Scores, check_predictions
from tests.runs.cases import case


@dataclasses.dataclass(frozen=True)
class Hinge(losses.Loss):
    """A raw score."""

    label_kind = "binary"
    meaning = "score"

    def __call__(self, outputs, labels):
        return jnp.maximum(0.0, 1 - (2 * labels - 1) * outputs)

    def prediction(self, output):
        return output


@dataclasses.dataclass(frozen=True)
class Shown(Hinge):
    """A score in [0, 1], which the class describes so."""

    is_from_0_to_1 = True


@dataclasses.dataclass(frozen=True)
class Liar(Hinge):
    """A score that is described as a probability."""

    meaning = "probability"


def task(loss, *names):
    uses = tuple(read(MetricUse, name) for name in names)
    return Task(label="label", losses=(loss,), metrics=uses)


@pytest.mark.parametrize(
    ("metric", "instead"),
    [
        ("auc", "use exact_auc"),
        ("pr_auc", "use exact_pr_auc"),
        ("log_loss", "such as exact_auc or mae"),
        ({"name": "decayed", "metric": "auc"}, "such as exact_auc"),
    ],
)
def test_a_metric_of_probabilities_refuses_scores(metric, instead):
    with pytest.raises(ConfigError, match=rf"tasks.buy.metrics: .*described as 'score'; .*{instead}"):
        check_predictions({"buy": task(Hinge(), metric)})
    check_predictions({"buy": task(Shown(), metric)})
    check_predictions({"buy": task(losses.BinaryCrossEntropy(), metric)})


def test_metrics_of_scores_take_scores():
    check_predictions({"buy": task(losses.BPR(session_name="user"), "auc")})
    check_predictions({"buy": task(Hinge(), "exact_auc", "mae", {"name": "auc", "from_logits": True})})
    check_predictions({"kind": task(losses.SoftmaxCrossEntropy(), {"name": "multiclass_auc", "num_classes": 3})})


def test_training_refuses_before_it_writes(tmp_path):
    config = case("tasks.click.losses=[l2]")
    with pytest.raises(ConfigError, match=r"tasks\.click\.metrics: auc needs predictions in"):
        runs.train(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_reasons_are_those_of_the_metrics():
    scores = Scores({"buy": task(Hinge(), "auc", "mae")})
    states = scores.update(scores.init(), {"logits": jnp.array([-2.0, 3.0])}, {"label": jnp.array([0.0, 1.0])})
    values = scores.compute(states)
    reasons = scores.reasons(states, values)
    assert list(reasons) == ["auc"]
    assert reasons["auc"].startswith("2 predictions are not in [0, 1]")
    assert scores.has_faults("auc", states)
    assert not scores.has_faults("mae", states)


@pytest.fixture
def liar():
    losses.register_loss("liar")(Liar)
    yield Liar()
    losses.registry._records.pop("liar")


def test_a_run_logs_each_reason_once(liar, tmp_path):
    config = case("train.steps=4", "train.log_every_steps=1", "evaluate.every_steps=1")
    buy = config.tasks["click"].model_copy(update={"losses": (liar,)})
    stream = io.StringIO()
    run = runs.train(config.model_copy(update={"tasks": {"click": buy}}), tmp_path, stream=stream)
    lines = [line for line in stream.getvalue().splitlines() if "auc is NaN: " in line]
    assert len(lines) == 1
    assert "predictions are not in [0, 1]" in lines[0]
    entries = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(entry["auc"] is None and "not in [0, 1]" in entry["undefined"]["auc"] for entry in entries)
    recorded = RecordedRun.read(tmp_path)
    assert all(math.isnan(entry.values["auc"]) and "undefined" not in entry.values for entry in recorded.evaluations)
    with pytest.warns(UserWarning, match="auc is NaN: .* predictions are not in"):
        run.evaluate()
    assert metrics.AUC().needs_probabilities
