"""Metrics for recommenders: exact, weighted, mergeable, fast.

A metric is a frozen dataclass of options; its state is a separate value:

>>> from sparrow import metrics
>>> auc = metrics.AUC(thresholds=200)
>>> state = auc.init()
>>> state = auc.update(state, [0.1, 0.7, 0.4, 0.9], [0, 1, 0, 1], weights=None)    # one batch; runs inside jax.jit
>>> state = auc.merge(state, auc.init())                                           # of another worker, another file
>>> auc.compute(state)
1.0

Where there is no number, `compute` is NaN and `reason` gives the cause:

>>> auc.reason(auc.update(auc.init(), [0.1, 0.7], [1, 1]))
'AUC: no negative labels'

There are two kinds (`Metric.jittable` distinguishes them):

* fixed size, jittable: AUC PRAUC MulticlassAUC, LogLoss NormalizedEntropy Calibration Accuracy, Mean MAE MSE RMSE
  RelativeL1 UniqueRatio, RecallAtK HitRateAtK NDCGAtK MRR MAPAtK, XAUC(in_batch=True), DecayedAUC, Decayed(metric);
* exact, keep their rows on the host: ExactAUC ExactPRAUC GroupedAUC XAUC GroupedXAUC ByGroup(ranking metric)
  Collisions.

Models with two towers are ranked against all items by `catalog_ranks` and `catalog_metrics`.

`registry` builds them by name from a config, `register_metric` adds yours; `to_bytes` and `from_bytes` keep a
state; `merge_across_processes` and `compute_across_processes` join the states of many processes.
"""

from sparrow.metrics.auc import AUC, PRAUC, MulticlassAUC, average_precision, rates_from_the_top, roc_area
from sparrow.metrics.catalog import catalog_metrics, catalog_ranks, seen_by
from sparrow.metrics.decayed import Decayed, DecayedAUC
from sparrow.metrics.distributed import (
    compute_across_processes,
    evaluate_across_processes,
    from_bytes,
    merge_across_processes,
    route_groups,
    to_bytes,
)
from sparrow.metrics.exact import ExactAUC, ExactPRAUC
from sparrow.metrics.fixed import FixedSizeMetric
from sparrow.metrics.grouped import GroupedAUC, GroupedMetric
from sparrow.metrics.pointwise import (
    MAE,
    MSE,
    RMSE,
    Accuracy,
    AverageMetric,
    Calibration,
    LogLoss,
    Mean,
    NormalizedEntropy,
    RelativeL1,
)
from sparrow.metrics.protocol import Metric, Result, register_metric, registry
from sparrow.metrics.ranking import MRR, ByGroup, HitRateAtK, MAPAtK, NDCGAtK, RankingMetric, RecallAtK
from sparrow.metrics.rows import RowMetric
from sparrow.metrics.unique import Collisions, UniqueRatio
from sparrow.metrics.xauc import XAUC, GroupedXAUC

__all__ = [
    "AUC",
    "MAE",
    "MRR",
    "MSE",
    "PRAUC",
    "RMSE",
    "XAUC",
    "Accuracy",
    "AverageMetric",
    "ByGroup",
    "Calibration",
    "Collisions",
    "Decayed",
    "DecayedAUC",
    "ExactAUC",
    "ExactPRAUC",
    "FixedSizeMetric",
    "GroupedAUC",
    "GroupedMetric",
    "GroupedXAUC",
    "HitRateAtK",
    "LogLoss",
    "MAPAtK",
    "Mean",
    "Metric",
    "MulticlassAUC",
    "NDCGAtK",
    "NormalizedEntropy",
    "RankingMetric",
    "RecallAtK",
    "RelativeL1",
    "RowMetric",
    "UniqueRatio",
    "catalog_metrics",
    "catalog_ranks",
    "compute_across_processes",
    "from_bytes",
    "merge_across_processes",
    "register_metric",
    "registry",
    "to_bytes",
]


def __dir__() -> list[str]:
    return __all__
