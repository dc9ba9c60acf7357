"""The options of each model: TorchEasyRec's messages as our records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.layers import (
    bayes_tower,
    extraction_network,
    make_mlp,
    mask_blocks,
    mlp,
    ranker,
    retriever_channel,
    task_tower,
    tower,
)
from sparrow.config.torcheasyrec.semantic_ids import SEMANTIC_IDS, rqkmeans, rqvae
from sparrow.models import BayesTaskTower, Capsules, DINTower, MINDUserTower, ModelRecord, Tower, WukongLayer, registry

MATCHING: Final = ("dssm", "dssm_v2", "dat", "mind", "hstu_match")
"""The models of two towers."""

Options = dict[str, Any]


def architecture(name: str, block: Block, config: Block) -> ModelRecord:
    """Return the record of a model. ``config``: ``model_config``, which holds losses and the number of classes."""
    if name in SEMANTIC_IDS:
        options = (rqvae if name == "sid_rqvae" else rqkmeans)(block, config)
    else:
        options = _taken(block, *_FIELDS[name]) if name in _FIELDS else _OPTIONS[name](block)
    ours = _RENAMED.get(name, name)
    if "num_classes" in {field.name for field in dataclasses.fields(registry[ours])}:
        options["num_classes"] = config["num_class"]
    with block.locating():
        return registry.make(ours, **options)


_RENAMED: Final = {
    "simple_multi_task": "dbmtl",
    "dlrm_hstu": "hstu_ranker",
    "ultra_hstu": "hstu_ranker",
    "hstu_match": "hstu_retriever",
}
"""Models that are a form of another one here."""


def _taken(block: Block, *names: str) -> Options:
    """Return fields that our record has under the same names."""
    return {name: _value(block[name]) for name in names}


def _value(held: Any) -> Any:
    """Return a field in the form of our records; messages become records."""
    if isinstance(held, Block):
        return _MESSAGES[held.kind](held)
    is_list = isinstance(held, list | tuple) and any(isinstance(each, Block) for each in held)
    return tuple(map(_value, held)) if is_list else held


def _wukong_layer(block: Block) -> WukongLayer:
    with block.locating():
        return WukongLayer(**_taken(block, *(field.name for field in dataclasses.fields(WukongLayer))))


def _dcn_v2(block: Block) -> Options:
    return {
        **_taken(block, "backbone", "deep", "final"),
        "cross_num": block["cross"]["cross_num"],
        "low_rank": block["cross"]["low_rank"] or None,
    }


def _simple_multi_task(block: Block) -> Options:
    """Return a DBMTL that shares nothing: each task has its layers over the features."""
    towers = map(task_tower, block["task_towers"])
    return {"task_towers": tuple(BayesTaskTower(each.task, each.mlp, each.num_classes) for each in towers)}


def _experts(block: Block) -> Options:
    return {**_taken(block, "expert_mlp", "gate_mlp", "task_towers"), "num_experts": block["num_expert"]}


def _pepnet(block: Block) -> Options:
    units = block["ppnet_hidden_units"]
    if not units:
        for field in ("ppnet_activation", "ppnet_dropout_ratio"):
            block.note("there are no ppnet_hidden_units", field)
    return {
        **_taken(block, "task_towers", "epnet_gamma", "ppnet_gamma"),
        "ppnet": make_mlp(block, "ppnet_", units) if units else None,
        "epnet_hidden_unit": block["epnet_hidden_unit"] or None,
        "task_domain_num": block["task_domain_num"] if "domain_input_name" in block else 1,
    }


def _matching(block: Block) -> Options:
    if block["similarity"] == "EUCLID":
        block.fail("not supported: INNER_PRODUCT and COSINE are", "similarity")
    return {
        "output_dim": block["output_dim"] or None,
        "similarity": block["similarity"].lower(),
        "negatives": "in_batch" if block["in_batch_negative"] else "sampled",
    }


def _dat(block: Block) -> Options:
    sides = {side: block[f"{side}_tower"] for side in ("user", "item")}
    return {
        **_matching(block),
        **{f"{side}_tower": Tower(entry["input"], mlp(entry["mlp"])) for side, entry in sides.items()},
        **{f"{side}_augment": entry["augment_input"] for side, entry in sides.items()},
        **_taken(block, "amm_u_weight", "amm_i_weight"),
    }


def _mind(block: Block) -> Options:
    user, capsules = block["user_tower"], block["user_tower"]["capsule_config"]
    with capsules.locating():
        routing = Capsules(**_taken(capsules, *(field.name for field in dataclasses.fields(Capsules))))
    return {
        **_matching(block),
        "user_tower": MINDUserTower(
            **_taken(user, "input", "history_input", "user_mlp", "concat_mlp", "hist_seq_mlp"), capsule_config=routing
        ),
        **_taken(block, "item_tower", "simi_pow"),
    }


def _hstu_match(block: Block) -> Options:
    if block["in_batch_negative"]:
        block.fail("not supported by TorchEasyRec's hstu_match; remove it, and draw negatives", "in_batch_negative")
    channel = retriever_channel(block["user_tower"])
    return {**_matching(block), "channel": channel, "item_tower": tower(block["item_tower"])}


def _rocket_launching(block: Block) -> Options:
    function = block["feature_distillation_function"]
    if function == "INNER_PRODUCT":
        block.fail("not supported: COSINE and EUCLID are", "feature_distillation_function")
    if function == "EUCLID":
        block.differ(
            "there it is the norm of all differences of a batch; here the mean norm of a row",
            "feature_distillation_function",
        )
    return {
        **_taken(block, "share_mlp", "booster_mlp", "light_mlp", "feature_based_distillation"),
        "feature_distillation_function": function.lower(),
    }


_MESSAGES: Final[Mapping[str, Callable[[Block], Any]]] = {
    "MLP": mlp,
    "Tower": tower,
    "DINTower": lambda block: DINTower(block["input"], mlp(block["attn_mlp"])),
    "TaskTower": task_tower,
    "BayesTaskTower": bayes_tower,
    "ExtractionNetwork": extraction_network,
    "MaskNetModule": mask_blocks,
    "WuKongLayer": _wukong_layer,
}
"""The records of messages inside of models."""
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "deepfm": ("deep", "final"),
    "wide_and_deep": ("deep", "final"),
    "dlrm": ("dense_mlp", "final", "arch_with_sparse"),
    "multi_tower": ("towers", "final"),
    "multi_tower_din": ("towers", "din_towers", "final"),
    "mask_net": ("mask_net_module",),
    "wukong": ("dense_mlp", "wukong_layers", "final"),
    "ple": ("extraction_networks", "task_towers"),
}
"""The models whose fields have the names of ours."""
_OPTIONS: Final[Mapping[str, Callable[[Block], Options]]] = {
    "dcn_v1": lambda block: {**_taken(block, "deep", "final"), "cross_num": block["cross"]["cross_num"]},
    "dcn_v2": _dcn_v2,
    "xdeepfm": lambda block: {**_taken(block["cin"], "cin_layer_size"), **_taken(block, "deep", "final")},
    "simple_multi_task": _simple_multi_task,
    "mmoe": _experts,
    "dbmtl": lambda block: {**_experts(block), **_taken(block, "mask_net", "bottom_mlp")},
    "pepnet": _pepnet,
    **dict.fromkeys(
        ("dssm", "dssm_v2"), lambda block: {**_matching(block), **_taken(block, "user_tower", "item_tower")}
    ),
    "dat": _dat,
    "mind": _mind,
    "tdm": lambda block: _taken(block["multiwindow_din"], "windows_len", "attn_mlp") | _taken(block, "final"),
    "rocket_launching": _rocket_launching,
    "dlrm_hstu": ranker,
    "ultra_hstu": ranker,
    "hstu_match": _hstu_match,
}
