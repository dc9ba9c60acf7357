"""Models and feature groups: TorchEasyRec's ``model_config`` as our sections ``model`` and ``tasks``."""

from __future__ import annotations

from typing import Any, Final

from sparrow import losses
from sparrow.config.sections.model import Model
from sparrow.config.sections.tasks import Task
from sparrow.config.torcheasyrec import tables
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.tasks import task
from sparrow.data import Feature
from sparrow.models import MLP, TaskTower, Tower, registry

_ACTIVATIONS: Final = {
    "": "none",
    "nn.ReLU": "relu",
    "nn.ReLU6": "relu6",
    "nn.LeakyReLU": "leaky_relu",
    "nn.ELU": "elu",
    "nn.SELU": "selu",
    "nn.GELU": "gelu",
    "nn.SiLU": "silu",
    "nn.Mish": "mish",
    "nn.Softplus": "softplus",
    "nn.Sigmoid": "sigmoid",
    "nn.Tanh": "tanh",
    "nn.PReLU": "prelu",
    "Dice": "dice",
}


def model(block: Block, found: list[tuple[Feature, Block]]) -> Model:
    """Return the section ``model`` and the options of its tables; ``found`` are the features with their messages."""
    name, chosen = block.choose("model")
    with chosen.locating():
        architecture = registry.make(name, **_options(name, chosen, block["num_class"]))
    wide = {"wide_dim": chosen["wide_embedding_dim"]} if name in ("deepfm", "wide_and_deep") else {}
    groups = _groups(block, architecture.wide_groups)
    in_wide = {name for group in architecture.wide_groups for name in groups.get(group, ())}
    twins = {f.table_use.table for f, _ in found if f.table_use is not None and f.name in in_wide}
    kept = tables.options(tables.by_table(found), twins, chosen)
    with block.locating():
        return Model(architecture=architecture, groups=groups, tables=kept, **wide)


def tasks(block: Block, data: Block) -> dict[str, Task]:
    """Return the section ``tasks``: one by the name of its label, or one for each task tower."""
    name, chosen = block.choose("model")
    labels, weights = data["label_fields"], data["sample_weight_fields"]
    if name == "mmoe":
        for field in ("losses", "metrics", "train_metrics"):
            if field in block:
                block.fail("belongs to the task_towers of mmoe", field)
        if weights:
            data.fail(
                "several tasks have weights of their own: sample_weight_name of each task tower", "sample_weight_fields"
            )
        return {tower["tower_name"]: _tower_task(tower, labels) for tower in chosen["task_towers"]}
    for field, given in (("label_fields", labels), ("sample_weight_fields", weights)):
        if len(given) > 1:
            data.fail(f"one is used, got {len(given)}: {', '.join(given)}; remove the others", field)
    (label,) = labels
    made = task(block, label, block["num_class"], weights[0] if weights else None)
    return {label: _with_candidates(made, block, chosen) if name == "dssm" else made}


def _tower_task(tower: Block, labels: tuple[str, ...]) -> Task:
    for field in ("label_name", "task_space_indicator_label"):
        if tower[field] is not None and tower[field] not in labels:
            tower.fail(f"'{tower[field]}' is not among the label_fields of data_config: {', '.join(labels)}", field)
    return task(
        tower,
        tower["label_name"],
        tower["num_class"],
        tower["sample_weight_name"],
        weight=tower["weight"],
        task_space_label=tower["task_space_indicator_label"],
        in_task_space_weight=tower["in_task_space_weight"],
        out_task_space_weight=tower["out_task_space_weight"],
    )


def _with_candidates(made: Task, block: Block, dssm: Block) -> Task:
    """Return the task with DSSM's softmax: over items, of the batch or drawn, with the temperature in the loss."""
    if {losses.registry.name_of(loss) for loss in made.losses} != {"softmax_cross_entropy"}:
        block.fail("dssm takes softmax_cross_entropy", "losses")
    kind = losses.InBatchSoftmax if dssm["in_batch_negative"] else losses.SampledSoftmax
    loss = kind(
        temperature=dssm["temperature"],
        label_smoothing=made.losses[0].label_smoothing,  # type: ignore[attr-defined]
    )
    return made.model_copy(update={"losses": (loss,)})


def _groups(block: Block, wide_groups: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for group in block["feature_groups"]:
        name, kind = group["group_name"], group["group_type"]
        if kind not in ("DEEP", "WIDE"):
            group.fail(
                f"not supported: {kind}; a sequence is pooled by a pooling_encoder of a DEEP group", "group_type"
            )
        if (kind == "WIDE") != (name in wide_groups):
            expected = "WIDE" if name in wide_groups else "DEEP"
            group.fail(f"must be {expected} for the group '{name}' of this model, got {kind}", "group_type")
        if name in groups:
            group.fail(f"another group is called '{name}' already", "group_name")
        pooled = [feature for sequences in group["sequence_groups"] for feature in sequences["feature_names"]]
        groups[name] = (*group["feature_names"], *pooled)
    return groups


def poolings(block: Block) -> dict[str, str]:
    """Return the pooling of each sequence in a group, by feature."""
    found: dict[str, str] = {}
    for group in block["feature_groups"]:
        encoders = {}
        for encoder in group["sequence_encoders"]:
            _, pooling = encoder.choose("seq_module")
            if pooling["pooling_type"] not in ("sum", "mean"):
                pooling.fail(f"must be 'sum' or 'mean', got {pooling['pooling_type']!r}", "pooling_type")
            encoders[pooling["input"]] = pooling
        for sequences in group["sequence_groups"]:
            encoder = encoders.pop(sequences["group_name"], None)
            if encoder is None:
                sequences.fail("needs a pooling_encoder of its group_name among the sequence_encoders")
            for feature in sequences["feature_names"]:
                if found.setdefault(feature, encoder["pooling_type"]) != encoder["pooling_type"]:
                    encoder.fail(f"the feature '{feature}' is pooled in another way elsewhere", "pooling_type")
        for name, encoder in encoders.items():
            encoder.fail(f"there is no sequence group '{name}' in this group", "input")
    return found


def _options(name: str, block: Block, num_class: int) -> dict[str, Any]:
    """Return the fields of the model's record."""
    match name:
        case "deepfm" | "wide_and_deep":
            return {"deep": _mlp(block["deep"]), "final": _mlp(block["final"]), "num_classes": num_class}
        case "dlrm":
            return {
                "dense_mlp": _mlp(block["dense_mlp"]),
                "final": _mlp(block["final"]),
                "arch_with_sparse": block["arch_with_sparse"],
                "num_classes": num_class,
            }
        case "multi_tower":
            towers = tuple(map(_tower, block["towers"]))
            return {"towers": towers, "final": _mlp(block["final"]), "num_classes": num_class}
        case "mmoe":
            return {
                "expert_mlp": _mlp(block["expert_mlp"]),
                "gate_mlp": _mlp(block["gate_mlp"]),
                "num_experts": block["num_expert"],
                "task_towers": tuple(map(_task_tower, block["task_towers"])),
            }
    if block["similarity"] == "EUCLID":
        block.fail("not supported: INNER_PRODUCT and COSINE are", "similarity")
    return {
        "user_tower": _tower(block["user_tower"]),
        "item_tower": _tower(block["item_tower"]),
        "output_dim": block["output_dim"],
        "similarity": block["similarity"].lower(),
        "negatives": "in_batch" if block["in_batch_negative"] else "sampled",
    }


def _tower(block: Block) -> Tower:
    return Tower(block["input"], _mlp(block["mlp"]))


def _task_tower(block: Block) -> TaskTower:
    with block.locating():
        return TaskTower(block["tower_name"], _mlp(block["mlp"]), num_classes=block["num_class"])


def _mlp(block: Block | None) -> MLP | None:
    if block is None:
        return None
    activation = block["activation"]
    if activation not in _ACTIVATIONS:
        known = ", ".join(repr(name) for name in _ACTIVATIONS if name)
        block.fail(f"must be one of {known}, got {activation!r}", "activation")
    ratios = block["dropout_ratio"]
    with block.locating():
        return MLP(
            hidden_units=block["hidden_units"],
            dropout_ratio=(ratios[0] if len(ratios) == 1 else ratios) if ratios else 0.0,
            activation=_ACTIVATIONS[activation],
            use_bn=block["use_bn"],
            bias=block["bias"],
            use_ln=block["use_ln"],
        )
