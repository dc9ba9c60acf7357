"""``export_config``: the criterion of the best checkpoint, which ``sparrow export --step best`` takes."""

from __future__ import annotations

from collections.abc import Mapping

from sparrow.config.sections.tasks import Task
from sparrow.config.sections.train import BestBy, Train
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.training import PRECISIONS
from sparrow.metrics import registry
from sparrow.tasks import named_metrics


def best_by(block: Block | None, tasks: Mapping[str, Task]) -> BestBy | None:
    """Return the criterion of the best checkpoint; None: the newest one is exported."""
    if block is None:
        return None
    kind = block["exporter_type"]
    if kind not in ("latest", "best"):
        block.fail(f"must be 'latest' or 'best', got {kind!r}", "exporter_type")
    if kind == "latest":
        for field in ("best_exporter_metric", "metric_larger_is_better"):
            block.note("exporter_type is latest", field)
        return None
    names = metric_names(tasks)
    wanted: str = block["best_exporter_metric"]
    if wanted not in names:
        block.fail(f"there is no metric '{wanted}'; the metrics are {', '.join(names)}", "best_exporter_metric")
    return BestBy(metric=names[wanted], mode="max" if block["metric_larger_is_better"] else "min")


def metric_names(tasks: Mapping[str, Task]) -> dict[str, str]:
    """Return our names of the metrics by TorchEasyRec's, such as ``recall@5`` or ``auc_ctr``."""
    names = {}
    for ours, use in named_metrics(tasks).items():
        short = registry.name_of(use.metric)
        theirs = _RENAMED.get(short, short)
        if short == "recall_at_k":
            theirs = f"recall@{getattr(use.metric, 'top_k', '')}"
        names[theirs if len(tasks) == 1 else f"{theirs}_{use.task}"] = ours
    return names


_RENAMED = {"mae": "mean_absolute_error", "mse": "mean_squared_error"}


def check_precision(block: Block | None, train: Train, use_ema: bool | None) -> None:
    """Raise an error where an export would differ from training: here it has the same precision and parameters."""
    if block is None:
        return
    if "mixed_precision" in block and PRECISIONS.get(block["mixed_precision"]) != train.precision:
        block.fail(
            "not supported: a model is exported in the precision of its training, mixed_precision of train_config",
            "mixed_precision",
        )
    averaged = train.ema is not None if use_ema is None else use_ema
    if block["use_dense_ema"] is not None and block["use_dense_ema"] != averaged:
        option = "--ema" if block["use_dense_ema"] else "--no-ema"
        block.fail(f"differs from evaluation; remove it, and add {option} to sparrow export", "use_dense_ema")
