"""Models: TorchEasyRec's ``model_config`` as our sections ``model`` and ``tasks``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from sparrow import losses, metrics
from sparrow.config.sections.model import Model
from sparrow.config.sections.tasks import MetricUse, Task
from sparrow.config.torcheasyrec import tables
from sparrow.config.torcheasyrec.architectures import CODES, MATCHING, SEMANTIC_IDS, architecture, code_task
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.groups import Groups
from sparrow.config.torcheasyrec.layers import RANKERS, bit_labels, label_name, record
from sparrow.data import Feature, Label
from sparrow.models import ModelRecord

_METRICS: Final = {"MeanAbsoluteError": "MAE", "MeanSquaredError": "MSE"}
"""Our names of metrics; others are called as their messages, and losses too."""
DOMAIN_INDEX: Final = "domain_index"
"""The group that holds the number of an example's domain, for pepnet."""


def model(block: Block, found: list[tuple[Feature, Block]], groups: Groups) -> Model:
    """Return the section ``model`` and the options of its tables; ``found`` are the features with their messages."""
    name, chosen = block.choose("model")
    made = architecture(name, chosen, block)
    _check_types(block, made)
    wide = {"wide_dim": chosen["wide_embedding_dim"]} if made.wide_groups else {}
    features = dict(groups.features)
    if name == "pepnet" and "domain_input_name" in chosen:
        features[DOMAIN_INDEX] = (domain_feature(chosen),)
    kept = tables.options(tables.by_table(found), wide_tables(block, found, groups), chosen)
    dropout: Block | None = block["variational_dropout"]
    return block.make(
        Model,
        architecture=made,
        groups=features,
        encoders=dict(groups.encoders),
        variational_dropout=None if dropout is None else dropout["regularization_lambda"],
        tables=kept,
        **wide,
    )


def domain_feature(pepnet: Block) -> str:
    """Return the name of the feature that holds the number of an example's domain."""
    return f"{pepnet['domain_input_name']}_index"


def wide_tables(block: Block, found: list[tuple[Feature, Block]], groups: Groups) -> set[str]:
    """Return the tables whose features have a twin in a wide group."""
    wide = {group["group_name"] for group in block["feature_groups"] if group["group_type"] == "WIDE"}
    named = {feature for group in wide for feature in groups.features.get(group, ())}
    return {f.table_use.table for f, _ in found if f.table_use is not None and f.name in named}


def _check_types(block: Block, made: ModelRecord) -> None:
    """Raise an error unless the groups that want tables of their own are those of the type WIDE."""
    for group in block["feature_groups"]:
        name, kind = group["group_name"], group["group_type"]
        if (kind == "WIDE") != (name in made.wide_groups):
            expected = "WIDE" if name in made.wide_groups else "DEEP"
            group.fail(f"must be {expected} for the group '{name}' of this model, got {kind}", "group_type")


def tasks(block: Block, data: Block, columns: Mapping[str, str]) -> dict[str, Task]:
    """Return the section ``tasks``: one by the name of its label, or one for each task tower.

    ``columns``: the column of each feature that has one, by which metrics and losses group.
    """
    name, chosen = block.choose("model")
    labels, weights = data["label_fields"], data["sample_weight_fields"]
    if name in SEMANTIC_IDS:
        return {CODES: code_task(block, chosen, weights[0] if weights else None)}
    if not labels:
        data.fail("is required", "label_fields")
    if name in RANKERS:
        data.note("the tasks of a fusion_mtl_tower have no weights of examples", "sample_weight_fields")
        _check_own(block, f"task_configs of {name}")
        configs = chosen["fusion_mtl_tower"]["task_configs"]
        for each in configs:
            _check_label(each, "label_name", labels)
        return {
            each["task_name"]: task(each, label_name(each), each["num_class"], None, columns, weight=each["weight"])
            for each in configs
        }
    if "task_towers" in chosen:
        if weights:
            data.note("each task tower names its own in sample_weight_name", "sample_weight_fields")
        _check_own(block, f"task_towers of {name}")
        pareto = block["use_pareto_loss_weight"]
        return {tower["tower_name"]: _tower_task(tower, labels, columns, pareto) for tower in chosen["task_towers"]}
    block.note("there is one task", "use_pareto_loss_weight")
    for field, given in (("label_fields", labels), ("sample_weight_fields", weights)):
        if len(given) > 1 and field in data:
            data.findings.use(data.place(field))
    made = task(block, labels[0], block["num_class"], weights[0] if weights else None, columns)
    if name == "rocket_launching":
        return {"light": made, "booster": made}
    return {labels[0]: _with_candidates(made, block, name, chosen) if name in MATCHING else made}


def labels_of(block: Block) -> tuple[Label, ...]:
    """Return the labels that are made from a column."""
    name, chosen = block.choose("model")
    return bit_labels(chosen) if name in RANKERS else ()


def _check_own(block: Block, owner: str) -> None:
    """Refuse losses, metrics and classes of the model where they belong to its tasks."""
    for field in ("losses", "metrics", "train_metrics", "num_class"):
        if field in block:
            block.fail(f"belongs to the {owner}; move it there", field)


def _check_label(block: Block, field: str, labels: tuple[str, ...]) -> None:
    if block[field] is not None and block[field] not in labels:
        block.fail(f"'{block[field]}' is not among the label_fields of data_config: {', '.join(labels)}", field)


def _tower_task(tower: Block, labels: tuple[str, ...], columns: Mapping[str, str], pareto: bool) -> Task:
    for field in ("label_name", "task_space_indicator_label"):
        _check_label(tower, field, labels)
    options: dict[str, Any] = {"weight": tower["weight"]}
    if pareto:
        options["pareto_min_loss_weight"] = tower["pareto_min_loss_weight"]
    else:
        tower.note("use_pareto_loss_weight is false", "pareto_min_loss_weight")
    weights = ("in_task_space_weight", "out_task_space_weight")
    if "task_space_indicator_label" in tower:
        options |= {"task_space_label": tower["task_space_indicator_label"]} | {name: tower[name] for name in weights}
    else:
        tower.note("there is no task_space_indicator_label", *weights)
    label, sample_weight = tower["label_name"], tower["sample_weight_name"]
    return task(tower, label, tower["num_class"], sample_weight, columns, **options)


def _with_candidates(made: Task, block: Block, name: str, chosen: Block) -> Task:
    """Return the task with the softmax of two towers: over items, of the batch or drawn, with the temperature."""
    if [losses.registry.name_of(loss) for loss in made.losses] != ["softmax_cross_entropy"]:
        block.fail(f"{name} takes one loss, softmax_cross_entropy; remove the others", "losses")
    kind = losses.InBatchSoftmax if chosen["in_batch_negative"] else losses.SampledSoftmax
    loss = kind(
        temperature=chosen["temperature"],
        label_smoothing=made.losses[0].label_smoothing,  # type: ignore[attr-defined]
        log_q=False,  # TorchEasyRec corrects nothing
    )
    return made.model_copy(update={"losses": (loss,)})


def loss(block: Block, columns: Mapping[str, str]) -> losses.Loss:
    """Return the loss of one entry of ``losses``. ``columns``: the column of each feature."""
    _, chosen = block.choose("loss")
    kind = getattr(losses, chosen.kind.removesuffix("Loss"), None)
    if kind is None:
        block.fail("is a loss of sid_rqvae; remove it")
    own = {"session_name": _column(chosen, "session_name", columns)} if chosen.kind == "JRCLoss" else {}
    made: losses.Loss = record(chosen, kind, **own)
    return made


def _column(block: Block, field: str, columns: Mapping[str, str]) -> str:
    """Return the column of the feature that a field names, or the column of that name where there is no feature."""
    name: str = block[field]
    return columns.get(name, name)


def metric(block: Block, num_class: int, columns: Mapping[str, str]) -> MetricUse:
    """Return the metric of one entry of ``metrics``."""
    _, chosen = block.choose("metric")
    is_grouped = chosen.kind in ("GroupedAUC", "GroupedXAUC")
    group_by = _column(chosen, "grouping_key", columns) if is_grouped else None
    return chosen.make(MetricUse, metric=_plain_metric(chosen, num_class), group_by=group_by)


def train_metric(block: Block) -> MetricUse:
    """Return the metric of one entry of ``train_metrics``, decayed: a measure of the latest steps."""
    _, chosen = block.choose("metric")
    decay = {"decay_rate": block["decay_rate"], "decay_step": block["decay_step"]}
    with block.locating():
        if chosen.kind == "AUC":
            return MetricUse(metric=metrics.DecayedAUC(thresholds=chosen["thresholds"], **decay))
        if chosen.kind == "XAUC":
            chosen.note("while training, all pairs within a batch are compared", "sample_ratio", "max_pairs")
            return MetricUse(metric=metrics.Decayed(metrics.XAUC(in_batch=True), **decay))
        return MetricUse(metric=metrics.Decayed(_plain_metric(chosen, 1), **decay))


def task(
    block: Block, label: str, num_class: int, sample_weight: str | None, columns: Mapping[str, str], **fields: Any
) -> Task:
    """Return the task of a message that has ``losses``, ``metrics`` and ``train_metrics``."""
    if not block["losses"]:
        block.fail("is required: one loss at least", "losses")
    return block.make(
        Task,
        label=label,
        losses=tuple(loss(entry, columns) for entry in block["losses"]),
        metrics=_distinct(metric(entry, num_class, columns) for entry in block["metrics"]),
        train_metrics=_distinct(map(train_metric, block["train_metrics"])),
        sample_weight=sample_weight,
        **fields,
    )


def _plain_metric(chosen: Block, num_class: int) -> metrics.Metric[Any]:
    if chosen.kind != "XAUC":
        own = {"num_classes": num_class} if chosen.kind == "MulticlassAUC" else {}
        made: metrics.Metric[Any] = record(chosen, getattr(metrics, _METRICS.get(chosen.kind, chosen.kind)), **own)
        return made
    counts = "in_batch" if chosen["in_batch"] else "max_pairs" if "max_pairs" in chosen else "sample_ratio"
    for field in ("sample_ratio", "max_pairs"):
        if counts == "in_batch" or field != counts != "sample_ratio":
            chosen.note("in_batch or max_pairs counts", field)
    return chosen.make(metrics.XAUC, **{counts: chosen[counts]})


def _distinct(uses: Iterable[MetricUse]) -> tuple[MetricUse, ...]:
    """Return the metrics in order, each once: a second one of the same options would give the same number."""
    return tuple(dict.fromkeys(uses))
