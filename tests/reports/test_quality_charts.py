"""Quality of predictions that are numbers, and of two towers: charts equal what the rows give."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.config import Task
from sparrow.reports.curves import by_prediction, median, within
from sparrow.tasks import QualityCounts
from tests.reports.pages import charts
from tests.reports.test_page import evaluation, page_of, write_run

ROWS = 4000


def counts_of(task, batches):
    counts = QualityCounts({"task": Task(**task)})
    states = counts.init()
    for outputs, columns in batches:
        states = counts.update(states, outputs, columns)
    return json.loads(json.dumps(counts.plain(states)))["task"]


def page_with(tmp_path, held, *entries):
    folder = write_run(tmp_path / "run", entries or [evaluation(4)])
    (folder / "curves.json").write_text(json.dumps({"step": 4, "tasks": {"task": held}}))
    return page_of(folder, output=tmp_path / "out.html")


@pytest.fixture(scope="module", params=[(3.0, 1.0), (1.96e6, 40.0)], ids=["stars", "far from 0"])
def numbers(request):
    """Labels, predictions that are too close to their mean, and their counts in two batches."""
    center, scale = request.param
    rng = np.random.default_rng(0)
    labels = (center + scale * rng.normal(size=ROWS)).astype(np.float32)
    predictions = (center + 0.5 * (labels - center) + 0.3 * scale * rng.normal(size=ROWS)).astype(np.float32)
    batches = [
        ({"logits": jnp.array(p)}, {"y": y}) for p, y in zip(np.split(predictions, 2), np.split(labels, 2), strict=True)
    ]
    return labels.astype(float), predictions.astype(float), counts_of({"label": "y", "losses": ["l2"]}, batches), scale


def test_groups_by_prediction_are_those_of_the_rows(numbers):
    labels, predictions, held, scale = numbers
    predicted, found, error, weight = by_prediction(held)
    assert weight.sum() == ROWS
    order = np.argsort(predictions)
    groups = np.array_split(order, len(weight))
    np.testing.assert_allclose(predicted, [predictions[g].mean() for g in groups], rtol=0, atol=0.05 * scale)
    np.testing.assert_allclose(found, [labels[g].mean() for g in groups], rtol=0, atol=0.15 * scale)
    total = np.sqrt(weight @ error**2 / ROWS)
    assert total == pytest.approx(np.sqrt(np.mean((predictions - labels) ** 2)), rel=0.02)


def test_charts_of_numbers(numbers, tmp_path):
    labels, predictions, held, scale = numbers
    found = charts(page_with(tmp_path, held))
    assert {"labels-task", "error-by-prediction-task", "errors-task", "values-task"} <= set(found)
    bars = found["errors-task"]["data"]["series"][0]
    assert sum(bars["y"]) == pytest.approx(ROWS, rel=0.02)
    middle = np.average(bars["x"], weights=bars["y"])
    assert middle == pytest.approx(np.mean(predictions - labels), abs=0.1 * scale)
    shown = {line["name"]: line for line in found["values-task"]["data"]["series"]}
    spread = {name: _spread(line) for name, line in shown.items()}
    assert spread["labels"] == pytest.approx(labels.std(), rel=0.1)
    assert spread["predictions"] == pytest.approx(predictions.std(), rel=0.1)


def _spread(line):
    mean = np.average(line["x"], weights=line["y"])
    return np.sqrt(np.average((np.array(line["x"]) - mean) ** 2, weights=line["y"]))


def test_weights_count_and_rows_that_are_not_finite_do_not():
    task = {"label": "y", "losses": ["l2"], "sample_weight": "w"}
    columns = {"y": np.array([1, 2, 3], np.float32), "w": np.array([1, 5, 1], np.float32)}
    held = counts_of(task, [({"logits": jnp.array([1.0, 2.0, jnp.nan])}, columns)])
    assert held["weight"] == [1, 5]
    np.testing.assert_allclose(held["prediction"], [1, 2], rtol=1e-5)
    assert held["squared_error"] == pytest.approx([0, 0], abs=1e-9)


def test_ranks_of_two_towers(tmp_path):
    rng = np.random.default_rng(0)
    task = {"label": "y", "losses": ["in_batch_softmax"]}
    batches = []
    expected = []
    for _ in range(3):
        query, item = (rng.normal(size=(50, 4)).astype(np.float32) for _ in range(2))
        item += 0.7 * query
        scores = query @ item.T
        expected += (scores >= scores[np.arange(50), np.arange(50)][:, None]).sum(axis=1).tolist()
        batches.append(({"query": jnp.array(query), "item": jnp.array(item)}, {"y": np.ones(50, np.float32)}))
    held = counts_of(task, batches)
    assert held["candidates"] == 50
    assert median(held) == np.sort(expected)[74]
    rank, share = within(held)
    assert dict(zip(rank, share, strict=True))[1.0] == pytest.approx(np.mean(np.array(expected) == 1))
    metrics = {"recall_at_1": 0.1, "recall_at_20": 0.5, "ndcg_at_20": 0.2, "mrr": 0.3}
    found = charts(page_with(tmp_path, held, evaluation(4, **metrics)))
    assert found["ranks-task"]["caption"].endswith(f"median rank {median(held)}</b>")
    assert "among the 50 items of its batch" in found["ranks-task"]["notes"][0]
    lines = {line["name"]: (line["x"], line["y"]) for line in found["at-k"]["data"]["series"]}
    assert lines == {"recall": ([1, 20], [0.1, 0.5])}  # a metric at one K alone is a tile, no line


def test_several_kinds_of_tasks_share_a_page(tmp_path):
    folder = write_run(tmp_path / "run", [evaluation(4)])
    scores = {"score": [0.1, 0.9], "positive": [1.0, 3.0], "negative": [4.0, 0.0]}
    columns = {"y": np.array([1, 2, 3], np.float32)}
    held = counts_of({"label": "y", "losses": ["l2"]}, [({"logits": jnp.array([1.0, 2.0, 2.5])}, columns)])
    (folder / "curves.json").write_text(json.dumps({"step": 4, "tasks": {"click": scores, "stars": held}}))
    found = charts(page_of(folder, output=tmp_path / "out.html"))
    assert found["roc-click"]["data"]["title"] == "ROC, click"
    assert found["errors-stars"]["data"]["title"] == "Errors, stars"
