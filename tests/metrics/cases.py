"""One list of all metrics, each with data of its own shape."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sparrow import metrics

ROWS = 24
EVERY_THIRD = (np.arange(ROWS) % 3 == 0).astype(np.float32)
Batch = dict[str, Any]  # the arguments of update


class Case(NamedTuple):
    name: str
    metric: metrics.Metric[Any]
    make: Callable[[np.random.Generator], Batch]
    batch_free: bool = True  # the result does not depend on how rows are batched
    counts_copies: bool = True  # a row of weight 2 is two rows


def binary(rng):
    # Thresholds of a histogram lie among the predictions, and there are ties.
    p = np.round(rng.random(ROWS), 2).astype(np.float32)
    return {"predictions": p, "labels": EVERY_THIRD.copy()}


def logits(rng):
    return {"predictions": rng.normal(size=ROWS).astype(np.float32), "labels": EVERY_THIRD.copy()}


def classes(rng):
    p = rng.random((ROWS, 3)).astype(np.float32)
    return {"predictions": p / p.sum(axis=1, keepdims=True), "labels": (np.arange(ROWS) % 3).astype(np.float32)}


def regression(rng):
    draw = rng.integers(-4, 5, (2, ROWS)).astype(np.float32)
    return {"predictions": draw[0], "labels": draw[0] + draw[1]}


def vectors(rng):
    return {
        "predictions": rng.normal(size=(ROWS, 4)).astype(np.float32),
        "labels": rng.normal(size=(ROWS, 4)).astype(np.float32),
    }


def codes(rng):
    return {"predictions": rng.integers(0, 2, (ROWS, 3)), "labels": None}


def values(rng):
    return {"predictions": rng.normal(size=ROWS).astype(np.float32), "labels": None}


def lists(rng):
    # The first list has nothing relevant.
    relevance = (rng.integers(0, 3, (ROWS, 5)) * (np.arange(ROWS) > 0)[:, None]).astype(np.float32)
    return {"predictions": rng.integers(0, 4, (ROWS, 5)).astype(np.float32), "labels": relevance}


def grouped(make):
    def with_groups(rng):
        return {**make(rng), "groups": rng.integers(-3, 3, ROWS)}

    return with_groups


def flat_lists(rng):
    return {
        "predictions": rng.normal(size=ROWS).astype(np.float32),
        "labels": rng.integers(0, 3, ROWS).astype(np.float32),
    }


CASES = [
    Case("auc", metrics.AUC(thresholds=20), binary),
    Case("auc_logits", metrics.AUC(from_logits=True, add_origin=True), logits),
    Case("exact_auc", metrics.ExactAUC(), binary),
    Case("pr_auc", metrics.PRAUC(), binary),
    Case("exact_pr_auc", metrics.ExactPRAUC(), logits),
    Case("multiclass_auc", metrics.MulticlassAUC(num_classes=3, average="weighted"), classes),
    Case("log_loss", metrics.LogLoss(), binary),
    Case("log_loss_classes", metrics.LogLoss(), classes),
    Case("normalized_entropy", metrics.NormalizedEntropy(from_logits=True), logits),
    Case("calibration", metrics.Calibration(bins=7), binary),
    Case("accuracy", metrics.Accuracy(threshold=0.4), binary),
    Case("accuracy_classes", metrics.Accuracy(top_k=2), classes),
    Case("mean", metrics.Mean(), values),
    Case("mae", metrics.MAE(), regression),
    Case("mse", metrics.MSE(), vectors),
    Case("rmse", metrics.RMSE(), regression),
    Case("relative_l1", metrics.RelativeL1(), vectors),
    Case("unique_ratio", metrics.UniqueRatio(), codes, batch_free=False),
    Case("grouped_auc", metrics.GroupedAUC(average="clicks"), grouped(binary)),
    Case("xauc", metrics.XAUC(), regression, counts_copies=False),
    Case("xauc_in_batch", metrics.XAUC(in_batch=True), regression, batch_free=False, counts_copies=False),
    Case("xauc_sampled", metrics.XAUC(max_pairs=500), regression, counts_copies=False),
    Case("grouped_xauc", metrics.GroupedXAUC(), grouped(regression), counts_copies=False),
    Case("recall", metrics.RecallAtK(top_k=2), lists),
    Case("recall_macro", metrics.RecallAtK(top_k=2, average="macro"), lists),
    Case("hit_rate", metrics.HitRateAtK(top_k=1), lists),
    Case("ndcg", metrics.NDCGAtK(top_k=3), lists),
    Case("mrr", metrics.MRR(), lists),
    Case("map", metrics.MAPAtK(top_k=3), lists),
    # The rows of a group are one list: a copy of a row is another candidate.
    Case("by_group", metrics.ByGroup(metrics.NDCGAtK(top_k=3)), grouped(flat_lists), counts_copies=False),
    Case("decayed_auc", metrics.DecayedAUC(decay_step=1), binary, batch_free=False),
    Case("decayed", metrics.Decayed(metrics.MAE(), decay_step=1), regression, batch_free=False),
    Case("decayed_rows", metrics.Decayed(metrics.ExactAUC(), decay_step=1), binary, batch_free=False),
]


def names(cases):
    return {"argvalues": cases, "ids": [case.name for case in cases]}


def weights(rng, rows=ROWS):
    """Weights in quarters, some of them 0: their sums are exact."""
    return (rng.integers(0, 9, rows) / 4).astype(np.float32)


def take(batch, rows):
    """The same batch with the chosen rows only."""
    return {key: None if value is None else np.asarray(value)[rows] for key, value in batch.items()}


def run(metric, *batches):
    """The state after ``batches``."""
    state = metric.init()
    for batch in batches:
        state = metric.update(state, **batch)
    return state
