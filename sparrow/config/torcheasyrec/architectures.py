"""The options of each model: TorchEasyRec's messages as our records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.layers import fields, mlp, ranker, record, retriever_channel
from sparrow.config.torcheasyrec.semantic_ids import SEMANTIC_IDS, rqkmeans, rqvae
from sparrow.models import BayesTaskTower, ModelRecord, registry

MATCHING: Final = ("dssm", "dssm_v2", "dat", "mind", "hstu_match")
"""The models of two towers."""
_RENAMED: Final = {
    "simple_multi_task": "dbmtl",
    "dlrm_hstu": "hstu_ranker",
    "ultra_hstu": "hstu_ranker",
    "hstu_match": "hstu_retriever",
}
"""Models that are a form of another one here."""
_INSIDE: Final = {"dcn_v1": "cross", "dcn_v2": "cross", "xdeepfm": "cin", "tdm": "multiwindow_din"}
"""The messages inside of others with further options of a model."""

Options = dict[str, Any]


def architecture(name: str, block: Block, config: Block) -> ModelRecord:
    """Return the record of a model. ``config``: ``model_config``, which holds losses and the number of classes.

    The fields of a model that have our names are its options; `_OPTIONS` has the others.
    """
    ours = _RENAMED.get(name, name)
    kind = registry[ours]
    if name in SEMANTIC_IDS:
        options = (rqvae if name == "sid_rqvae" else rqkmeans)(block, config)
    else:
        options = _OPTIONS[name](block) if name in _OPTIONS else {}
    if name in _INSIDE:
        options = {**fields(block[_INSIDE[name]], kind, options), **options}
    if "num_classes" in {field.name for field in dataclasses.fields(kind)}:
        options["num_classes"] = config["num_class"]
    return block.make(registry.make, ours, **fields(block, kind, options), **options)


def _pepnet(block: Block) -> Options:
    units = block["ppnet_hidden_units"]
    if not units:
        block.note("there are no ppnet_hidden_units", "ppnet_activation", "ppnet_dropout_ratio")
    return {
        "ppnet": mlp(block, "ppnet_") if units else None,
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
    augments = {f"{side}_augment": block[f"{side}_tower"]["augment_input"] for side in ("user", "item")}
    return {**_matching(block), **augments}


def _hstu_match(block: Block) -> Options:
    if block["in_batch_negative"]:
        block.fail("not supported by TorchEasyRec's hstu_match; remove it, and draw negatives", "in_batch_negative")
    return {**_matching(block), "channel": retriever_channel(block["user_tower"])}


def _rocket_launching(block: Block) -> Options:
    function = block["feature_distillation_function"]
    if function == "INNER_PRODUCT":
        block.fail("not supported: COSINE and EUCLID are", "feature_distillation_function")
    if function == "EUCLID":
        block.differ(
            "there it is the norm of all differences of a batch; here the mean norm of a row",
            "feature_distillation_function",
        )
    return {"feature_distillation_function": function.lower()}


_OPTIONS: Final[Mapping[str, Callable[[Block], Options]]] = {
    "dcn_v2": lambda block: {"low_rank": block["cross"]["low_rank"] or None},
    # Nothing is shared: each task has its layers over the features.
    "simple_multi_task": lambda block: {
        "task_towers": tuple(record(tower, BayesTaskTower) for tower in block["task_towers"])
    },
    "pepnet": _pepnet,
    **dict.fromkeys(("dssm", "dssm_v2", "mind"), _matching),
    "dat": _dat,
    "rocket_launching": _rocket_launching,
    "dlrm_hstu": ranker,
    "ultra_hstu": ranker,
    "hstu_match": _hstu_match,
}
"""The options of models whose fields have other names or values here."""
