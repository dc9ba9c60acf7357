"""Rows by score: curves of rare events are as good as those of common ones; weights count; other labels have none."""

import numpy as np
import pytest

from sparrow.config import Task
from sparrow.metrics import ExactAUC, ExactPRAUC
from sparrow.reports.curves import Scored
from sparrow.tasks import QualityCounts

TASK = {"label": "clicked", "losses": ["binary_cross_entropy"]}


def scored(logits, labels, **task):
    histograms = QualityCounts({"click": Task(**TASK, **task)})
    columns = {"clicked": labels, "weight": np.where(labels == 1, 1.0, 3.0).astype(np.float32)}
    states = histograms.update(histograms.init(), {"logits": logits}, columns)
    return histograms.plain(states)


@pytest.mark.parametrize("bias", [-7.0, -1.0, 3.0])
def test_areas_and_calibration_follow_the_rows(bias):
    rng = np.random.default_rng(0)
    logits = (bias + 1.5 * rng.standard_normal(200_000)).astype(np.float32)
    p = 1 / (1 + np.exp(-logits.astype(np.float64)))
    labels = (rng.random(len(p)) < p).astype(np.float32)
    found = Scored.of(scored(logits, labels)["click"])
    for metric, area in ((ExactAUC(), found.roc_area), (ExactPRAUC(), found.average_precision)):
        exact = metric.compute(metric.update(metric.init(), p.astype(np.float32), labels))
        assert area == pytest.approx(exact, rel=2e-3, abs=1e-3)
    predicted, observed, rows = found.calibration()
    assert rows.sum() == len(p)
    assert predicted @ rows == pytest.approx(p.sum(), rel=1e-3)
    assert observed @ rows == labels.sum()
    groups = np.array_split(np.sort(p), len(rows))
    np.testing.assert_allclose(predicted, [group.mean() for group in groups], rtol=0.1)


def test_weights_count():
    labels = np.array([0, 1, 1, 0], np.float32)
    held = scored(np.array([-1, 1, 1, 2], np.float32), labels, sample_weight="weight")["click"]
    assert (held["negative"], held["positive"]) == ([3.0, 0.0, 3.0], [0.0, 2.0, 0.0])
    np.testing.assert_allclose(held["score"], 1 / (1 + np.exp([1.0, -1.0, -2.0])), rtol=0.01)


def test_certain_predictions_have_a_place():
    held = scored(np.array([-90, 90, 0], np.float32), np.array([0, 1, 1], np.float32))["click"]
    assert held["score"][0] < 1e-6 < 1 - 1e-6 < held["score"][2]


def test_other_labels_and_other_losses_have_no_curves():
    assert scored(np.zeros(2, np.float32), np.array([0.5, 1.0], np.float32)) == {}
    unordered = Task(label="kind", losses=["softmax_cross_entropy"])
    assert QualityCounts({"kind": unordered}).init() == {}
