"""Messages as our records, by the names of their fields: MLPs, towers and the like, and the parts of HSTU."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from sparrow import models
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.messages import MESSAGES
from sparrow.data import Label

T = TypeVar("T")

_THEIRS: Final[Mapping[str, tuple[str, ...]]] = {
    "task": ("tower_name", "task_name"),
    "num_classes": ("num_class",),
    "num_experts": ("num_expert",),
    "initial_accumulator": ("initial_accumulator_value",),
    "embedding_dim": ("action_embedding_dim",),
    "bitmasks": ("action_weights",),
    "watchtime_thresholds": ("watchtime_to_action_thresholds",),
    "watchtime_bitmasks": ("watchtime_to_action_weights",),
    "pair_separator": ("kv_delimiter",),
}
"""Other names of fields of our records in messages."""


def fields(block: Block, kind: Any, others: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of the record ``kind`` that a message has too, but for ``others``; messages become records.

    Where our default is None, 0 stands for it in the message.
    """
    ours = {name: field for field in dataclasses.fields(kind) for name in (field.name, *_THEIRS.get(field.name, ()))}
    found: dict[str, Any] = {}
    for name in MESSAGES[block.kind]:
        if (field := ours.get(name)) is not None and field.name not in others:
            value = _converted(block[name])
            found[field.name] = value or None if field.default is None else value
    return found


def record(block: Block, kind: Callable[..., T], **others: Any) -> T:
    """Return the record ``kind`` of a message, with ``others`` of its fields."""
    return block.make(kind, **fields(block, kind, others), **others)


def _converted(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_converted, value))
    if not isinstance(value, Block):
        return value
    made = _RECORDS[value.kind]
    return record(value, made) if isinstance(made, type) else made(value)


_FUNCTIONS: Final = ("ReLU", "ReLU6", "ELU", "SELU", "GELU", "SiLU", "Mish", "Softplus", "Sigmoid", "Tanh", "PReLU")
_ACTIVATIONS: Final = {
    **{f"nn.{name}": name.lower() for name in _FUNCTIONS},
    **{"": "none", "nn.LeakyReLU": "leaky_relu", "Dice": "dice"},
}


def mlp(block: Block, prefix: str = "") -> models.MLP:
    """Return the layers of a message, whose fields begin with ``prefix``."""
    units, activation, ratios = (block[prefix + name] for name in ("hidden_units", "activation", "dropout_ratio"))
    if activation not in _ACTIVATIONS:
        known = ", ".join(repr(name) for name in _ACTIVATIONS if name)
        block.fail(f"must be one of {known}, got {activation!r}", f"{prefix}activation")
    return record(
        block,
        models.MLP,
        hidden_units=units,
        dropout_ratio=(ratios[0] if len(ratios) == 1 else ratios) if ratios else 0.0,
        activation=_ACTIVATIONS[activation],
    )


def _extraction_network(block: Block) -> models.ExtractionNetwork:
    if not block["share_num"]:
        block.fail("is required: the number of experts that all tasks share, at least 1", "share_num")
    return record(block, models.ExtractionNetwork)


_RECORDS: Final[Mapping[str, Callable[[Block], Any] | type[Any]]] = {
    "MLP": mlp,
    "Tower": models.Tower,
    "DATTower": models.Tower,
    "DINTower": models.DINTower,
    "TaskTower": models.TaskTower,
    "BayesTaskTower": models.BayesTaskTower,
    "FusionSubTaskConfig": models.TaskTower,
    "ExtractionNetwork": _extraction_network,
    "MaskNetModule": lambda block: record(block, models.MaskBlocks, **fields(block["mask_block"], models.MaskBlocks)),
    "WuKongLayer": models.WukongLayer,
    "MINDUserTower": models.MINDUserTower,
    "B2ICapsule": models.Capsules,
    "GRContextualizedMLP": lambda block: block.choose("contextualized_mlp")[1]["hidden_dim"],
}
"""The records of messages inside of models."""


RANKERS: Final = ("dlrm_hstu", "ultra_hstu")


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
        "mlp": _converted(tower["mlp"]),
        "item_hidden_dim": block["item_embedding_hidden_dim"],
        "task_towers": _converted(tower["task_configs"]),
    }


def retriever_channel(tower: Block) -> models.HSTUChannel:
    """Return the channel of the user's tower of ``hstu_match``."""
    return _channel(tower["hstu"], tower["max_seq_len"], False, tower["input"])


def label_name(block: Block) -> str:
    """Return the name of a task's label: that of its column, with the bits that it reads."""
    name: str = block["label_name"]
    return f"{name}_{block['task_bitmask']}" if "task_bitmask" in block else name


def bit_labels(block: Block) -> tuple[Label, ...]:
    """Return the labels that are bits of a column, each once."""
    found = {}
    for each in block["fusion_mtl_tower"]["task_configs"]:
        if "task_bitmask" in each:
            name = label_name(each)
            found[name] = each.make(Label, name, column=each["label_name"], bitmask=each["task_bitmask"])
    return tuple(found.values())


def _channel(block: Block, max_seq_len: int, concat: bool, name: str | None = None) -> models.HSTUChannel:
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
    return block.make(
        models.HSTUChannel,
        stu=_stu(block, max_seq_len),
        name=name or own or "uih",
        content=None if name is not None else _content(preprocessor),
        actions=_actions(preprocessor),
        postprocessor=post.removesuffix("_postprocessor"),
        time_periods=_periods(chosen) if post == "timestamp_layernorm_postprocessor" else (),
        concat_contextual_features=concat,
    )


def _stu(block: Block, max_seq_len: int) -> models.STU:
    stu, places = block["stu"], block["positional_encoder"]
    of_times = ("num_time_buckets", "time_bucket_fn", "time_bucket_increments")
    if not places["use_time_encoding"]:
        places.note("use_time_encoding is false", *of_times)
    elif not places["num_time_buckets"]:
        places.fail("is required with use_time_encoding: at least 1", "num_time_buckets")
    return record(
        stu,
        models.STU,
        scaling_seqlen=max_seq_len if stu["scaling_seqlen"] < 0 else stu["scaling_seqlen"],
        **fields(places, models.STU, () if places["use_time_encoding"] else of_times),
        **fields(block, models.STU),
        truncation_split_layer=block["attn_truncation_split_layer"] or None,
        truncation_tail_len=block["attn_truncation_tail_len"] or None,
    )


def _content(block: Block) -> models.Content:
    kind, chosen = block["content_encoder"].choose("content_encoder")
    hidden_dim = _converted(block["content_mlp"])
    return block.make(
        models.Content, hidden_dim, kind.removesuffix("_content_encoder"), **fields(chosen, models.Content)
    )


def _actions(block: Block) -> models.Actions | None:
    if block["action_encoder"] is None:
        if block["action_mlp"] is not None:
            block["action_mlp"].note_all("there is no action_encoder")
        return None
    if block["action_mlp"] is None:
        block.fail("is required with action_encoder", "action_mlp")
    _, chosen = block["action_encoder"].choose("action_encoder")
    return record(chosen, models.Actions, hidden_dim=_converted(block["action_mlp"]))


def _periods(block: Block) -> tuple[models.TimePeriod, ...]:
    units, counts = block["time_duration_period_units"], block["time_duration_units_per_period"]
    if len(units) != len(counts):
        block.fail(f"must be as many as time_duration_period_units, {len(units)}", "time_duration_units_per_period")
    return tuple(block.make(models.TimePeriod, unit, count) for unit, count in zip(units, counts, strict=True))
