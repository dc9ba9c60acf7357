"""Ranking metrics of rows that are grouped by a column: the rows of a group are one list."""

import numpy as np
import pytest

from sparrow import metrics
from sparrow.config import Task
from sparrow.tasks import Scores, named_metrics


def test_group_by_on_ranking_metrics():
    recall = {"name": "recall_at_k", "top_k": 1, "group_by": "user"}
    both = [recall, {"name": "ndcg_at_k", "group_by": "user"}, {"name": "grouped_auc", "group_by": "user"}]
    tasks = {"click": Task(label="clicked", losses=["binary_cross_entropy"], metrics=both)}
    assert list(named_metrics(tasks)) == ["recall_at_1(user)", "ndcg_at_10(user)", "grouped_auc(user)"]
    scores = Scores(tasks)
    users, labels = np.array([0, 0, 1, 1, 1]), np.array([1.0, 0, 0, 1, 0])
    logits = np.array([2.0, 1.0, 3.0, 2.0, 1.0])
    arrays = scores.for_host({"logits": logits}, {"clicked": labels})
    states = scores.update_host(scores.init_host(), arrays, {"user": users})
    results = scores.compute(states)
    assert results["recall_at_1(user)"] == pytest.approx(0.5)
    assert results["ndcg_at_10(user)"] == pytest.approx((1 + 1 / np.log2(3)) / 2)
    assert tasks["click"].metrics[0].metric == metrics.RecallAtK(top_k=1)  # as it was written


def test_other_metrics_do_not_group():
    with pytest.raises(ValueError, match="does not work by group; remove group_by 'user'"):
        Task(label="clicked", losses=["l2"], metrics=[{"name": "mae", "group_by": "user"}])
