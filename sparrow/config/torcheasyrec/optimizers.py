"""Optimizers and learning rates: of tables, of dense parameters, and of some of these, as ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from sparrow import dense, rules, schedules
from sparrow.config.sections.train import DenseOptimizer, DensePart
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.layers import record
from sparrow.config.torcheasyrec.messages import MESSAGES

_RULES: Final[Mapping[str, Callable[..., rules.Rule]]] = {
    "FusedSGDOptimizer": rules.SGD,
    "FusedAdagradOptimizer": rules.Adagrad,
    "FusedAdamOptimizer": rules.Adam,
    "FusedLarsSGDOptimizer": rules.LarsSGD,
    "FusedLAMBOptimizer": rules.LAMB,
    "FusedPartialRowWiseLAMBOptimizer": rules.PartialRowwiseLAMB,
    "FusedPartialRowWiseAdamOptimizer": rules.PartialRowwiseAdam,
    "FusedRowWiseAdagradOptimizer": rules.RowwiseAdagrad,
    "FusedAdadeltaOptimizer": rules.Adadelta,
    "FusedRMSpropOptimizer": rules.RMSprop,
}
_DENSE: Final[Mapping[str, Callable[..., dense.DenseOptimizer]]] = {
    "SGDOptimizer": dense.SGD,
    "AdagradOptimizer": dense.Adagrad,
    "AdamOptimizer": dense.Adam,
    "AdamWOptimizer": dense.AdamW,
    "AdadeltaOptimizer": dense.Adadelta,
    "RMSpropOptimizer": dense.RMSprop,
}
_SCHEDULES: Final[Mapping[str, Callable[..., Callable[[Any], Any]]]] = {
    "ExponentialDecayLR": schedules.exponential_decay,
    "ManualStepLR": schedules.manual_steps,
    "CosineAnnealingLR": schedules.cosine_annealing,
    "CosineAnnealingWarmRestartsLR": schedules.cosine_annealing_warm_restarts,
}
_SIZES: Final = ("decay_size", "schedule_sizes", "T_max", "T_0", "warmup_size")


def sparse_rule(block: Block, accumulate: int) -> rules.Rule:
    """Return the rule of all tables."""
    _, optimizer = block.choose("optimizer")
    _, rate = block.choose("learning_rate")
    options: dict[str, Any] = {"max_gradient": None}
    if optimizer["gradient_clipping"]:
        options["max_gradient"] = optimizer["max_gradient"]
    else:
        optimizer.note("gradient_clipping is false", "max_gradient")
    if optimizer.kind == "FusedRowWiseAdagradOptimizer":
        options |= _row_wise_decay(optimizer)
    options["learning_rate"] = learning_rate(optimizer, rate, accumulate)
    return record(optimizer, _RULES[optimizer.kind], **options)


def dense_optimizer(block: Block, accumulate: int, clipping: Block | None) -> DenseOptimizer:
    """Return the optimizer of the dense parameters, with its parts.

    TorchEasyRec gives a parameter to the first part whose pattern matches; here a parameter that two parts match is an
    error when the parameters are known. Patterns are over our parameter paths, such as ``deep/layers/0/linear/kernel``.
    """
    _, optimizer = block.choose("optimizer")
    _, rate = block.choose("learning_rate")
    parts: dict[str, DensePart] = {}
    for index, part in enumerate(block["part_optimizers"]):
        _, part_optimizer = part.choose("optimizer")
        _, part_rate = part.chosen("learning_rate") or ("", rate)  # a part without one follows the main schedule
        fields = _dense_group(part_optimizer, part_rate, accumulate)
        if any(part["regex_pattern"] in other.patterns for other in parts.values()):
            part.fail("is the pattern of an earlier part, which would take all its parameters", "regex_pattern")
        parts[f"part_{index}"] = part.make(DensePart, patterns=(part["regex_pattern"],), **fields)
    fields = _dense_group(optimizer, rate, accumulate) | _clip(clipping)
    return block.make(DenseOptimizer, parts=parts, **fields)


def _dense_group(optimizer: Block, rate: Block, accumulate: int) -> dict[str, Any]:
    return {
        "optimizer": record(optimizer, _DENSE[optimizer.kind]),
        "learning_rate": learning_rate(optimizer, rate, accumulate),
        "weight_decay" if optimizer.kind == "AdamWOptimizer" else "l2": optimizer["weight_decay"],
    }


def _row_wise_decay(optimizer: Block) -> dict[str, Any]:
    mode = optimizer["weight_decay_mode"]
    if mode == "NONE":
        optimizer.note("weight_decay_mode is NONE, with which TorchEasyRec decays nothing either", "weight_decay")
        return {"weight_decay": 0.0, "weight_decay_mode": "none"}
    return {"weight_decay": optimizer["weight_decay"], "weight_decay_mode": mode.lower()}


def _clip(clipping: Block | None) -> dict[str, Any]:
    """Return the clipping of ``grad_clipping``, which in TorchEasyRec applies to the dense gradients alone."""
    if clipping is None:
        return {}
    clipping.note(
        "TorchEasyRec takes it without effect; train.clip_global_norm clips tables and dense parameters together",
        "enable_global_grad_clip",
    )
    kind: str = clipping["clipping_type"]
    match kind.lower():
        case "none":
            clipping.note("clipping_type is none", "max_gradient", "norm_type")
            return {}
        case "value":
            clipping.note("clipping_type is value", "norm_type")
            return {"clip_value": clipping["max_gradient"]}
        case "norm":
            norm: float = clipping["norm_type"]
            if norm < 1:
                clipping.fail(f"must be at least 1, or inf, got {norm:g}", "norm_type")
            return {"clip_norm": clipping["max_gradient"], "clip_norm_type": "inf" if math.isinf(norm) else norm}
    clipping.fail(f"must be 'norm', 'value' or 'none', got {kind!r}", "clipping_type")


def learning_rate(optimizer: Block, rate: Block, accumulate: int) -> float | Callable[[Any], Any]:
    """Return the rate of an optimizer: a constant number, or a schedule whose base is the optimizer's ``lr``.

    TorchEasyRec's schedules count micro-batches, ours count optimizer steps: with ``accumulate`` micro-batches in a
    step, sizes in steps are divided by it. Sizes in epochs stay.
    """
    lr: float = optimizer["lr"]
    if rate.kind == "ConstantLR":
        return lr
    fields: dict[str, Any] = {name.lower(): rate[name] for name in MESSAGES[rate.kind]}
    for field in () if rate["by_epoch"] else _SIZES:
        given = fields.get(field.lower())
        if isinstance(given, tuple):
            fields[field.lower()] = tuple(in_steps(rate, field, each, accumulate) for each in given)
        elif given is not None:
            fields[field.lower()] = in_steps(rate, field, given, accumulate)
    return rate.make(_SCHEDULES[rate.kind], lr, **fields)


def in_steps(block: Block, field: str, count: int, accumulate: int) -> int:
    """Return a number of micro-batches as a number of optimizer steps."""
    if count % accumulate:
        block.fail(
            f"counts micro-batches, of which gradient_accumulation_steps makes {accumulate} a step; "
            f"{count} is not a multiple of it",
            field,
        )
    return count // accumulate
