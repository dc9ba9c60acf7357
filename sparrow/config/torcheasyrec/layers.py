"""Layers of architectures: MLPs, towers and the like, and the parts of HSTU."""

from __future__ import annotations

from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.data import Label
from sparrow.models import (
    MLP,
    STU,
    Actions,
    BayesTaskTower,
    Content,
    ExtractionNetwork,
    HSTUChannel,
    MaskBlocks,
    TaskTower,
    TimePeriod,
    Tower,
)

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


def mlp(block: Block) -> MLP:
    """Return the layers of a message."""
    return make_mlp(
        block, "", block["hidden_units"], use_bn=block["use_bn"], bias=block["bias"], use_ln=block["use_ln"]
    )


def make_mlp(block: Block, prefix: str, units: Any, **fields: Any) -> MLP:
    """Return the layers of a message whose activation and dropout have names with ``prefix``."""
    activation, ratios = block[f"{prefix}activation"], block[f"{prefix}dropout_ratio"]
    if activation not in _ACTIVATIONS:
        known = ", ".join(repr(name) for name in _ACTIVATIONS if name)
        block.fail(f"must be one of {known}, got {activation!r}", f"{prefix}activation")
    with block.locating():
        return MLP(
            hidden_units=units,
            dropout_ratio=(ratios[0] if len(ratios) == 1 else ratios) if ratios else 0.0,
            activation=_ACTIVATIONS[activation],
            **fields,
        )


def optional_mlp(block: Block | None) -> MLP | None:
    """Return the layers of a message; None where it is not given."""
    return None if block is None else mlp(block)


def tower(block: Block) -> Tower:
    """Return a tower over one group."""
    return Tower(block["input"], optional_mlp(block["mlp"]))


def task_tower(block: Block) -> TaskTower:
    """Return the layers of one task."""
    with block.locating():
        return TaskTower(block["tower_name"], optional_mlp(block["mlp"]), num_classes=block["num_class"])


def bayes_tower(block: Block) -> BayesTaskTower:
    """Return the layers of one task that reads others."""
    with block.locating():
        return BayesTaskTower(
            block["tower_name"],
            optional_mlp(block["mlp"]),
            num_classes=block["num_class"],
            relation_tower_names=block["relation_tower_names"],
            relation_mlp=optional_mlp(block["relation_mlp"]),
        )


def mask_blocks(block: Block | None) -> MaskBlocks | None:
    """Return the blocks of MaskNet; None where they are not given."""
    if block is None:
        return None
    inner = block["mask_block"]
    with block.locating():
        return MaskBlocks(
            n_mask_blocks=block["n_mask_blocks"],
            hidden_dim=inner["hidden_dim"],
            reduction_ratio=inner["reduction_ratio"],
            aggregation_dim=inner["aggregation_dim"] or None,
            top_mlp=optional_mlp(block["top_mlp"]),
            use_parallel=block["use_parallel"],
        )


def extraction_network(block: Block) -> ExtractionNetwork:
    """Return one layer of PLE."""
    if not block["share_num"]:
        block.fail("is required: the number of experts that all tasks share, at least 1", "share_num")
    with block.locating():
        return ExtractionNetwork(
            expert_num_per_task=block["expert_num_per_task"],
            task_expert_net=mlp(block["task_expert_net"]),
            share_num=block["share_num"],
            share_expert_net=optional_mlp(block["share_expert_net"]),
        )


RANKERS: Final = ("dlrm_hstu", "ultra_hstu")
_POSTPROCESSORS: Final[dict[str, Any]] = {
    "l2norm_postprocessor": "l2norm",
    "layernorm_postprocessor": "layernorm",
    "timestamp_layernorm_postprocessor": "timestamp_layernorm",
}
_ENCODERS: Final[dict[str, Any]] = {
    "slice_content_encoder": "slice",
    "pad_content_encoder": "pad",
    "mlp_content_encoder": "mlp",
}


def ranker(block: Block) -> dict[str, Any]:
    """Return the options of `sparrow.models.HSTURanker`."""
    channels = block["hstu"] if block.kind == "UltraHSTU" else (block["hstu"],)
    if len(channels) > 1:
        for channel in channels:
            if not channel["name"]:
                channel.fail("is required where there are several: the group of its history", "name")
    tower, concat = block["fusion_mtl_tower"], block["concat_contextual_features"]
    return {
        "channels": tuple(_channel(each, block["max_seq_len"], concat) for each in channels),
        "mlp": optional_mlp(tower["mlp"]),
        "item_hidden_dim": block["item_embedding_hidden_dim"],
        "task_towers": tuple(_task_tower(each) for each in tower["task_configs"]),
    }


def retriever_channel(tower: Block) -> HSTUChannel:
    """Return the channel of the user's tower of ``hstu_match``."""
    return _channel(tower["hstu"], tower["max_seq_len"], False, tower["input"])


def _task_tower(block: Block) -> TaskTower:
    with block.locating():
        return TaskTower(block["task_name"], num_classes=block["num_class"])


def label_name(block: Block) -> str:
    """Return the name of a task's label: that of its column, with the bits that it reads."""
    name: str = block["label_name"]
    return f"{name}_{block['task_bitmask']}" if "task_bitmask" in block else name


def bit_labels(block: Block) -> tuple[Label, ...]:
    """Return the labels that are bits of a column, each once."""
    found = {}
    for each in block["fusion_mtl_tower"]["task_configs"]:
        if "task_bitmask" in each:
            with each.locating():
                name = label_name(each)
                found[name] = Label(name, column=each["label_name"], bitmask=each["task_bitmask"])
    return tuple(found.values())


def _channel(block: Block, max_seq_len: int, concat: bool, name: str | None = None) -> HSTUChannel:
    """Return a channel; ``name``: that of a user's tower, which reads no candidates."""
    kind, preprocessor = block["input_preprocessor"].choose("input_preprocessor")
    if (kind == "uih_preprocessor") != (name is not None):
        which = "uih_preprocessor" if name is not None else "contextual_preprocessor"
        block["input_preprocessor"].fail(f"this model reads {which}; use it", kind)
    if kind == "contextual_interleave_preprocessor" and preprocessor["enable_interleaving"]:
        preprocessor.fail(
            "not supported: actions are added to their elements; set enable_interleaving: false", "enable_interleaving"
        )
    post, chosen = block["output_postprocessor"].choose("output_postprocessor")
    own = block["name"] or None
    if name is not None and own is not None and own != name:
        block.fail(f"must be the input of the tower, '{name}'; remove it", "name")
    with block.locating():
        return HSTUChannel(
            stu=_stu(block, max_seq_len),
            name=name or own or "uih",
            content=None if name is not None else _content(preprocessor),
            actions=_actions(preprocessor),
            postprocessor=_POSTPROCESSORS[post],
            time_periods=_periods(chosen) if post == "timestamp_layernorm_postprocessor" else (),
            concat_contextual_features=concat,
        )


def _stu(block: Block, max_seq_len: int) -> STU:
    stu, places = block["stu"], block["positional_encoder"]
    scaling = stu["scaling_seqlen"]
    if not places["use_time_encoding"]:
        for field in ("num_time_buckets", "time_bucket_fn", "time_bucket_increments"):
            places.note("use_time_encoding is false", field)
    elif not places["num_time_buckets"]:
        places.fail("is required with use_time_encoding: at least 1", "num_time_buckets")
    times = places["use_time_encoding"]
    with stu.locating():
        return STU(
            embedding_dim=stu["embedding_dim"],
            num_heads=stu["num_heads"],
            hidden_dim=stu["hidden_dim"],
            attention_dim=stu["attention_dim"],
            scaling_seqlen=max_seq_len if scaling < 0 else scaling,
            num_position_buckets=places["num_position_buckets"],
            attn_num_layers=block["attn_num_layers"],
            num_time_buckets=places["num_time_buckets"] if times else None,
            time_bucket_fn=places["time_bucket_fn"] if times else "sqrt",
            time_bucket_increments=places["time_bucket_increments"] if times else 60.0,
            attn_alpha=stu["attn_alpha"] or None,
            use_group_norm=stu["use_group_norm"],
            input_dropout_ratio=block["input_dropout_ratio"],
            output_dropout_ratio=stu["output_dropout_ratio"],
            max_attn_len=stu["max_attn_len"] or None,
            sla_k1=stu["sla_k1"],
            sla_k2=stu["sla_k2"],
            truncation_split_layer=block["attn_truncation_split_layer"] or None,
            truncation_tail_len=block["attn_truncation_tail_len"] or None,
        )


def _hidden_dim(block: Block) -> int:
    _, chosen = block.choose("contextualized_mlp")
    units: int = chosen["hidden_dim"]
    return units


def _content(block: Block) -> Content:
    kind, chosen = block["content_encoder"].choose("content_encoder")
    layers = {}
    if kind == "mlp_content_encoder":
        layers = {"uih_mlp": mlp(chosen["uih_mlp"]), "target_mlp": mlp(chosen["target_mlp"])}
    with block.locating():
        return Content(_hidden_dim(block["content_mlp"]), _ENCODERS[kind], **layers)


def _actions(block: Block) -> Actions | None:
    if block["action_encoder"] is None:
        if block["action_mlp"] is not None:
            block["action_mlp"].note_all("there is no action_encoder")
        return None
    if block["action_mlp"] is None:
        block.fail("is required with action_encoder", "action_mlp")
    _, chosen = block["action_encoder"].choose("action_encoder")
    with chosen.locating():
        return Actions(
            embedding_dim=chosen["action_embedding_dim"],
            bitmasks=chosen["action_weights"],
            hidden_dim=_hidden_dim(block["action_mlp"]),
            watchtime_thresholds=chosen["watchtime_to_action_thresholds"],
            watchtime_bitmasks=chosen["watchtime_to_action_weights"],
        )


def _periods(block: Block) -> tuple[TimePeriod, ...]:
    units, counts = block["time_duration_period_units"], block["time_duration_units_per_period"]
    if len(units) != len(counts):
        block.fail(f"must be as many as time_duration_period_units, {len(units)}", "time_duration_units_per_period")
    with block.locating():
        return tuple(TimePeriod(unit, count) for unit, count in zip(units, counts, strict=True))
