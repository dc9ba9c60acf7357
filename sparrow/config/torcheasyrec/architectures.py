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
    optional_mlp,
    ranker,
    retriever_channel,
    task_tower,
    tower,
)
from sparrow.config.torcheasyrec.semantic_ids import SEMANTIC_IDS, rqkmeans, rqvae
from sparrow.models import (
    BayesTaskTower,
    Capsules,
    DINTower,
    MINDUserTower,
    ModelRecord,
    Tower,
    WukongLayer,
    registry,
)

MATCHING: Final = ("dssm", "dssm_v2", "dat", "mind", "hstu_match")
"""The models of two towers."""

Options = dict[str, Any]


def architecture(name: str, block: Block, config: Block) -> ModelRecord:
    """Return the record of a model. ``config``: ``model_config``, which holds losses and the number of classes."""
    options = (
        (rqvae if name == "sid_rqvae" else rqkmeans)(block, config) if name in SEMANTIC_IDS else _OPTIONS[name](block)
    )
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


def _wide_model(block: Block) -> Options:
    return {"deep": mlp(block["deep"]), "final": optional_mlp(block["final"])}


def _dlrm(block: Block) -> Options:
    return {
        "dense_mlp": optional_mlp(block["dense_mlp"]),
        "final": mlp(block["final"]),
        "arch_with_sparse": block["arch_with_sparse"],
    }


def _multi_tower(block: Block) -> Options:
    return {"towers": tuple(map(tower, block["towers"])), "final": mlp(block["final"])}


def _multi_tower_din(block: Block) -> Options:
    towers = tuple(DINTower(entry["input"], mlp(entry["attn_mlp"])) for entry in block["din_towers"])
    return {**_multi_tower(block), "din_towers": towers}


def _mask_net(block: Block) -> Options:
    return {"mask_net_module": mask_blocks(block["mask_net_module"])}


def _dcn_v1(block: Block) -> Options:
    return {"deep": mlp(block["deep"]), "final": mlp(block["final"]), "cross_num": block["cross"]["cross_num"]}


def _dcn_v2(block: Block) -> Options:
    return {
        "backbone": optional_mlp(block["backbone"]),
        "deep": optional_mlp(block["deep"]),
        "final": mlp(block["final"]),
        "cross_num": block["cross"]["cross_num"],
        "low_rank": block["cross"]["low_rank"] or None,
    }


def _xdeepfm(block: Block) -> Options:
    sizes = block["cin"]["cin_layer_size"]
    return {"cin_layer_size": sizes, "deep": mlp(block["deep"]), "final": mlp(block["final"])}


def _wukong(block: Block) -> Options:
    def layer(entry: Block) -> WukongLayer:
        with entry.locating():
            return WukongLayer(
                lcb_feature_num=entry["lcb_feature_num"],
                fmb_feature_num=entry["fmb_feature_num"],
                feature_num_mlp=mlp(entry["feature_num_mlp"]),
                compressed_feature_num=entry["compressed_feature_num"],
            )

    return {
        "dense_mlp": optional_mlp(block["dense_mlp"]),
        "wukong_layers": tuple(map(layer, block["wukong_layers"])),
        "final": mlp(block["final"]),
    }


def _task_towers(block: Block) -> Options:
    return {"task_towers": tuple(map(task_tower, block["task_towers"]))}


def _simple_multi_task(block: Block) -> Options:
    """Return a DBMTL that shares nothing: each task has its layers over the features."""
    towers = map(task_tower, block["task_towers"])
    return {"task_towers": tuple(BayesTaskTower(each.task, each.mlp, each.num_classes) for each in towers)}


def _experts(block: Block) -> Options:
    return {
        "expert_mlp": optional_mlp(block["expert_mlp"]),
        "gate_mlp": optional_mlp(block["gate_mlp"]),
        "num_experts": block["num_expert"],
    }


def _mmoe(block: Block) -> Options:
    return {**_experts(block), **_task_towers(block)}


def _dbmtl(block: Block) -> Options:
    return {
        **_experts(block),
        "mask_net": mask_blocks(block["mask_net"]),
        "bottom_mlp": optional_mlp(block["bottom_mlp"]),
        "task_towers": tuple(map(bayes_tower, block["task_towers"])),
    }


def _ple(block: Block) -> Options:
    networks = tuple(map(extraction_network, block["extraction_networks"]))
    return {"extraction_networks": networks, **_task_towers(block)}


def _pepnet(block: Block) -> Options:
    units = block["ppnet_hidden_units"]
    if not units:
        for field in ("ppnet_activation", "ppnet_dropout_ratio"):
            block.note("there are no ppnet_hidden_units", field)
    return {
        **_task_towers(block),
        "ppnet": make_mlp(block, "ppnet_", units) if units else None,
        "epnet_hidden_unit": block["epnet_hidden_unit"] or None,
        "epnet_gamma": block["epnet_gamma"],
        "ppnet_gamma": block["ppnet_gamma"],
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


def _dssm(block: Block) -> Options:
    return {**_matching(block), "user_tower": tower(block["user_tower"]), "item_tower": tower(block["item_tower"])}


def _dat(block: Block) -> Options:
    sides = {side: block[f"{side}_tower"] for side in ("user", "item")}
    return {
        **_matching(block),
        **{f"{side}_tower": Tower(entry["input"], mlp(entry["mlp"])) for side, entry in sides.items()},
        **{f"{side}_augment": entry["augment_input"] for side, entry in sides.items()},
        "amm_u_weight": block["amm_u_weight"],
        "amm_i_weight": block["amm_i_weight"],
    }


def _mind(block: Block) -> Options:
    user, capsules = block["user_tower"], block["user_tower"]["capsule_config"]
    with capsules.locating():
        routing = Capsules(**{field.name: capsules[field.name] for field in dataclasses.fields(Capsules)})
    return {
        **_matching(block),
        "user_tower": MINDUserTower(
            input=user["input"],
            history_input=user["history_input"],
            user_mlp=mlp(user["user_mlp"]),
            capsule_config=routing,
            concat_mlp=mlp(user["concat_mlp"]),
            hist_seq_mlp=optional_mlp(user["hist_seq_mlp"]),
        ),
        "item_tower": tower(block["item_tower"]),
        "simi_pow": block["simi_pow"],
    }


def _hstu_match(block: Block) -> Options:
    if block["in_batch_negative"]:
        block.fail("not supported by TorchEasyRec's hstu_match; remove it, and draw negatives", "in_batch_negative")
    channel = retriever_channel(block["user_tower"])
    return {**_matching(block), "channel": channel, "item_tower": tower(block["item_tower"])}


def _tdm(block: Block) -> Options:
    windows = block["multiwindow_din"]
    return {
        "windows_len": windows["windows_len"],
        "attn_mlp": mlp(windows["attn_mlp"]),
        "final": mlp(block["final"]),
    }


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
        "share_mlp": optional_mlp(block["share_mlp"]),
        "booster_mlp": mlp(block["booster_mlp"]),
        "light_mlp": mlp(block["light_mlp"]),
        "feature_based_distillation": block["feature_based_distillation"],
        "feature_distillation_function": function.lower(),
    }


_OPTIONS: Final[Mapping[str, Callable[[Block], Options]]] = {
    "deepfm": _wide_model,
    "wide_and_deep": _wide_model,
    "dlrm": _dlrm,
    "multi_tower": _multi_tower,
    "multi_tower_din": _multi_tower_din,
    "mask_net": _mask_net,
    "dcn_v1": _dcn_v1,
    "dcn_v2": _dcn_v2,
    "xdeepfm": _xdeepfm,
    "wukong": _wukong,
    "simple_multi_task": _simple_multi_task,
    "mmoe": _mmoe,
    "dbmtl": _dbmtl,
    "ple": _ple,
    "pepnet": _pepnet,
    "dssm": _dssm,
    "dssm_v2": _dssm,
    "dat": _dat,
    "mind": _mind,
    "tdm": _tdm,
    "rocket_launching": _rocket_launching,
    "dlrm_hstu": ranker,
    "ultra_hstu": ranker,
    "hstu_match": _hstu_match,
}
