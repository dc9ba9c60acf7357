"""Metrics, losses and labels are checked against tasks before the first step."""

import numpy as np
import pytest

from sparrow import config, runs
from sparrow.config import ConfigError
from sparrow.tasks import Scores
from tests.config.examples import valid

WRONG = {
    "ranked lists": ["recall_at_k"],
    "an exact metric of ranked lists": [{"name": "by_group", "metric": "ndcg_at_k", "group_by": "id_0"}, "recall_at_k"],
    "several classes": [{"name": "multiclass_auc", "num_classes": 3}],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_metric_that_does_not_fit_ends_a_run_before_its_first_step(name, tmp_path, monkeypatch):
    stepped = []
    monkeypatch.setattr("sparrow.runs.loop.loop.Loop._make", lambda self, taken: stepped.append(taken))
    loaded = config.from_mapping(valid(tasks__click__metrics=WRONG[name]))
    with pytest.raises(ConfigError, match="tasks"):
        runs.train(loaded, tmp_path / "run")
    assert stepped == []


def test_an_exact_metric_of_one_score_refuses_several_classes_before_the_first_step(tmp_path, monkeypatch):
    stepped = []
    monkeypatch.setattr("sparrow.runs.loop.loop.Loop._make", lambda self, taken: stepped.append(taken))
    layers = {"hidden_units": [8]}
    deepfm = {"name": "deepfm", "deep": layers, "final": layers, "num_classes": 3}
    loaded = config.from_mapping(
        valid(
            tasks__click__losses=["softmax_cross_entropy"],
            tasks__click__metrics=["exact_auc"],
            model__architecture=deepfm,
        )
    )
    with pytest.raises(ConfigError, match=r"tasks\.click\.metrics"):
        runs.train(loaded, tmp_path / "run")
    assert stepped == []


def test_exact_metrics_are_rehearsed_on_shapes():
    loaded = config.from_mapping(
        valid(tasks__click__metrics=["exact_auc", {"name": "grouped_auc", "group_by": "id_0"}])
    )
    scores = Scores(loaded.tasks)
    scores.rehearse({("click", True): (np.zeros(4, np.float32), np.zeros(4, np.float32), None)})
    with pytest.raises(ConfigError, match=r"tasks\.click\.metrics"):
        scores.rehearse({("click", True): (np.zeros((4, 3), np.float32), np.zeros(4, np.float32), None)})
