"""The options of each model: TorchEasyRec's messages as our records; tasks of models of semantic ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparrow import losses, metrics
from sparrow.config.sections.tasks import MetricUse, Task
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.layers import fields, mlp, ranker, record, retriever_channel
from sparrow.models import BayesTaskTower, ModelRecord, registry

SEMANTIC_IDS: Final = ("sid_rqvae", "sid_rqkmeans")
CODES: Final = "codes"
"""The task, and the column of predictions, as TorchEasyRec calls it."""


def rqkmeans(block: Block, config: Block) -> dict[str, Any]:
    """Return the options of `sparrow.models.SidRqkmeans` that are no fields of the message."""
    _candidates(block)
    size, fit = block["train_sample_size"], block["faiss_kmeans_kwargs"]
    if fit is None:
        return {"sample_size": size}
    most = fit["max_points_per_centroid"] * max(block["codebook"])
    if size:
        fit.note("train_sample_size is the size of the sample", "max_points_per_centroid")
    fit.differ("other rows are drawn from it than FAISS draws", "seed")
    return {"iterations": fit["niter"], "spherical": fit["spherical"], "seed": fit["seed"], "sample_size": size or most}


def rqvae(block: Block, config: Block) -> dict[str, Any]:
    """Return the options of `sparrow.models.SidRqvae` that are no fields of the message; ``config`` has its losses."""
    given = _losses(config)
    _candidates(block)
    balanced, pair = block["sinkhorn_config"], block["contrastive_config"]
    if (pair is None) != ("contrastive_loss" not in given):
        block.fail("contrastive_config and a contrastive_loss go together; give both or neither")
    sinkhorn: dict[str, Any] = {}
    if balanced is not None:
        sinkhorn = {"sinkhorn_iters": balanced["iters"], "sinkhorn_epsilon": balanced["epsilon"]}
        if not balanced["enabled"]:
            sinkhorn = {"sinkhorn_iters": 0}
            balanced.note("enabled is false", "iters", "epsilon")
    draws = block["forward_mode"] == "gumbel_softmax"
    if draws:
        if balanced is not None:
            balanced.note_all("forward_mode gumbel_softmax goes without it")
        block.note("forward_mode gumbel_softmax goes without it", "rotation_trick")
    if pair is not None:
        pair.differ("metrics are of all rows here, there of those that are no pairs", "pair_flag_feature_group")
    return {
        "rotation_trick": block["rotation_trick"] and not draws,
        **({"sinkhorn_iters": 0} if draws else sinkhorn),
        **_commitment(given.get("commitment_loss")),
        "pair": None if pair is None else pair["pair_feature_group"],
        "pair_flag": None if pair is None else pair["pair_flag_feature_group"],
    }


def code_task(config: Block, block: Block, sample_weight: str | None) -> Task:
    """Return the task of a model of semantic ids: the reconstruction, with the metrics that TorchEasyRec gives."""
    for field in ("metrics", "train_metrics", "num_class"):
        if field in config:
            config.fail(f"{block.kind} has metrics of its own; remove it", field)
    config.note("there is one task", "use_pareto_loss_weight")
    given = _losses(config)
    recon = given.get("recon_loss")
    if block.kind == "SidRqkmeans":
        if config["losses"]:
            config.fail("sid_rqkmeans takes no losses; remove them", "losses")
    elif recon is None:
        config.fail("sid_rqvae needs a recon_loss", "losses")
    kinds = (metrics.MSE(), metrics.RelativeL1(), metrics.UniqueRatio(), metrics.Collisions())
    with (recon or config).locating():
        return Task(
            losses=(losses.Reconstruction("l2" if recon is None else recon["recon_type"]),),
            metrics=tuple(MetricUse(metric=metric) for metric in kinds),
            sample_weight=sample_weight,
        )


def _losses(config: Block) -> dict[str, Block]:
    """Return the losses of the model, by name."""
    found: dict[str, Block] = {}
    for entry in config["losses"]:
        name, chosen = entry.choose("loss")
        if name not in ("recon_loss", "commitment_loss", "contrastive_loss"):
            entry.fail("models of semantic ids take recon_loss, commitment_loss and contrastive_loss", name)
        if name in found:
            entry.fail(f"{name} is given twice; keep one", name)
        found[name] = chosen
    return found


def _commitment(loss: Block | None) -> dict[str, Any]:
    if loss is None:
        return {"latent_weight": None}
    weights = loss["latent_weight"] or (1.0, 0.5)
    if len(weights) != 2:
        loss.fail(f"must be two numbers, got {len(weights)}", "latent_weight")
    return {"latent_weight": tuple(weights), "commitment_type": loss["commitment_type"]}


def _candidates(block: Block) -> None:
    if block["candidate_output_config"] is not None:
        block["candidate_output_config"].note_all("enabled is false")


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
    negatives = "in_batch" if block["in_batch_negative"] else "sampled"
    return {"similarity": block["similarity"].lower(), "negatives": negatives}


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
