"""Losses and metrics of TorchEasyRec's model, or of each of its task towers, as ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sparrow import losses, metrics
from sparrow.config.sections.tasks import MetricUse, Task
from sparrow.config.torcheasyrec.blocks import Block


def loss(block: Block, columns: Mapping[str, str]) -> losses.Loss:
    """Return the loss of one entry of ``losses``. ``columns``: the column of each feature."""
    _, chosen = block.choose("loss")
    with chosen.locating():
        match chosen.kind:
            case "BinaryCrossEntropy":
                return losses.BinaryCrossEntropy(label_smoothing=chosen["label_smoothing"])
            case "SoftmaxCrossEntropy":
                return losses.SoftmaxCrossEntropy(label_smoothing=chosen["label_smoothing"])
            case "BinaryFocalLoss":
                return losses.BinaryFocal(gamma=chosen["gamma"], alpha=chosen["alpha"])
            case "JRCLoss":
                return losses.JRC(session_name=_column(chosen, "session_name", columns), alpha=chosen["alpha"])
            case "L2Loss":
                return losses.L2()
            case _:
                block.fail("is a loss of sid_rqvae; remove it")


def _column(block: Block, field: str, columns: Mapping[str, str]) -> str:
    """Return the column of the feature that a field names, or the column of that name where there is no feature."""
    name: str = block[field]
    return columns.get(name, name)


def metric(block: Block, num_class: int, columns: Mapping[str, str]) -> MetricUse:
    """Return the metric of one entry of ``metrics``."""
    _, chosen = block.choose("metric")
    grouped = chosen.kind in ("GroupedAUC", "GroupedXAUC")
    group_by = _column(chosen, "grouping_key", columns) if grouped else None
    with chosen.locating():
        return MetricUse(metric=_plain_metric(chosen, num_class), group_by=group_by)


def train_metric(block: Block) -> MetricUse:
    """Return the metric of one entry of ``train_metrics``, decayed: a measure of the latest steps."""
    _, chosen = block.choose("metric")
    decay = {"decay_rate": block["decay_rate"], "decay_step": block["decay_step"]}
    with block.locating():
        if chosen.kind == "AUC":
            return MetricUse(metric=metrics.DecayedAUC(thresholds=chosen["thresholds"], **decay))
        if chosen.kind == "XAUC":
            for field in ("sample_ratio", "max_pairs"):
                chosen.note("while training, all pairs within a batch are compared", field)
            return MetricUse(metric=metrics.Decayed(metrics.XAUC(in_batch=True), **decay))
        return MetricUse(metric=metrics.Decayed(_plain_metric(chosen, 1), **decay))


def task(
    block: Block,
    label: str,
    num_class: int,
    sample_weight: str | None,
    columns: Mapping[str, str],
    **fields: Any,
) -> Task:
    """Return the task of a message that has ``losses``, ``metrics`` and ``train_metrics``."""
    if not block["losses"]:
        block.fail("is required: one loss at least", "losses")
    with block.locating():
        return Task(
            label=label,
            losses=tuple(loss(entry, columns) for entry in block["losses"]),
            metrics=_distinct(metric(entry, num_class, columns) for entry in block["metrics"]),
            train_metrics=_distinct(map(train_metric, block["train_metrics"])),
            sample_weight=sample_weight,
            **fields,
        )


def _plain_metric(chosen: Block, num_class: int) -> metrics.Metric[Any]:
    with chosen.locating():
        match chosen.kind:
            case "AUC":
                return metrics.AUC(thresholds=chosen["thresholds"])
            case "MulticlassAUC":
                return metrics.MulticlassAUC(
                    num_classes=num_class, thresholds=chosen["thresholds"], average=chosen["average"]
                )
            case "RecallAtK":
                return metrics.RecallAtK(top_k=chosen["top_k"])
            case "MeanAbsoluteError":
                return metrics.MAE()
            case "MeanSquaredError":
                return metrics.MSE()
            case "Accuracy":
                return metrics.Accuracy(threshold=chosen["threshold"], top_k=chosen["top_k"])
            case "GroupedAUC":
                return metrics.GroupedAUC()
            case "GroupedXAUC":
                return metrics.GroupedXAUC()
            case "NormalizedEntropy":
                return metrics.NormalizedEntropy(eta=chosen["eta"])
            case _:
                return _xauc(chosen)


def _xauc(chosen: Block) -> metrics.XAUC:
    for field in ("sample_ratio", "max_pairs"):
        if chosen["in_batch"] or ("max_pairs" in chosen and field == "sample_ratio"):
            chosen.note("in_batch or max_pairs counts", field)
    if chosen["in_batch"]:
        return metrics.XAUC(in_batch=True)
    if "max_pairs" in chosen:
        return metrics.XAUC(max_pairs=chosen["max_pairs"])
    return metrics.XAUC(sample_ratio=chosen["sample_ratio"])


def _distinct(uses: Iterable[MetricUse]) -> tuple[MetricUse, ...]:
    """Return the metrics in order, each once: a second one of the same options would give the same number."""
    return tuple(dict.fromkeys(uses))
