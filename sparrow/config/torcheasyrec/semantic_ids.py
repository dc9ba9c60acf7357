"""Models of semantic ids: ``sid_rqvae`` and ``sid_rqkmeans`` with their losses, as ours."""

from __future__ import annotations

from typing import Any, Final

from sparrow import losses, metrics
from sparrow.config.sections.tasks import MetricUse, Task
from sparrow.config.torcheasyrec.blocks import Block

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
