"""``train_config``, ``eval_config`` and ``export_config``: optimizers, training, evaluation, the best checkpoint."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, get_args

from sparrow import dense, rules, schedules
from sparrow.config.sections.tasks import Task
from sparrow.config.sections.train import (
    BestBy,
    Checkpoint,
    DenseOptimizer,
    DensePart,
    Evaluate,
    StartFrom,
    Summary,
    Train,
)
from sparrow.config.torcheasyrec.blocks import Block
from sparrow.config.torcheasyrec.layers import record
from sparrow.config.torcheasyrec.messages import MESSAGES
from sparrow.metrics import registry
from sparrow.optimizer import LossScale
from sparrow.registry import nearest
from sparrow.tasks import named_metrics

PRECISIONS: Final[dict[str, Any]] = {"": "float32", "BF16": "bfloat16", "FP16": "float16"}


def train(block: Block, batch_size: int, **fields: Any) -> Train:
    """Return the section of ``train_config``, with TorchEasyRec's counts of micro-batches as optimizer steps.

    ``fields``: those that are made already, such as the optimizers of `optimizers_of`.
    """
    accumulate = block["gradient_accumulation_steps"] or 1
    precision = block["mixed_precision"]
    if precision not in PRECISIONS:
        block.fail(f"must be 'BF16', 'FP16' or left out, got {precision!r}", "mixed_precision")
    if not block["use_tensorboard"]:
        block.note("use_tensorboard is false", "tensorboard_summaries")
    scaler, ema, path = block["grad_scaler"], block["dense_optimizer"]["ema"], block["fine_tune_checkpoint"]
    return block.make(
        Train,
        batch_size=batch_size,
        accumulate=accumulate,
        precision=PRECISIONS[precision],
        loss_scale=None if scaler is None else record(scaler, LossScale),
        ema=None if ema is None else _decay(ema),
        start_from=_start_from(path) if path else None,
        # A line of the log may come early: rounded down, and at least one step.
        log_every_steps=max(1, block["log_step_count_steps"] // accumulate),
        tensorboard=block["use_tensorboard"],
        **_length(block, accumulate),
        **_summaries(block),
        **fields,
    )


def optimizers_of(block: Block) -> dict[str, Any]:
    """Return the optimizers of tables and dense parameters; problems of both are collected."""
    accumulate = block["gradient_accumulation_steps"] or 1
    made: dict[str, Any] = {}
    findings = block.findings
    if not block.broken & {"sparse_optimizer"}:
        with findings.collecting(), findings.part("train.sparse_optimizer"):
            made["sparse_optimizer"] = sparse_rule(block["sparse_optimizer"], accumulate)
    if not block.broken & {"dense_optimizer", "grad_clipping"}:
        with findings.collecting(), findings.part("train.dense_optimizer"):
            made["dense_optimizer"] = dense_optimizer(block["dense_optimizer"], accumulate, block["grad_clipping"])
    return made


def _start_from(path: str) -> StartFrom:
    """Return the run of a checkpoint: the folder of a run, or ``<folder>/model.ckpt-<step>``.

    >>> _start_from("runs/old/model.ckpt-100")
    StartFrom(folder='runs/old', step=100, tables={}, params={}, skip=(), optimizer=False)
    """
    folder, _, last = path.rstrip("/").rpartition("/")
    step = re.fullmatch(r"model\.ckpt-(\d+)", last)
    return StartFrom(folder=path) if step is None else StartFrom(folder=folder or ".", step=int(step.group(1)))


def evaluate(block: Block | None, batch_size: int | None, checkpoint: Checkpoint | None) -> Evaluate:
    """Return the section of ``eval_config``; TorchEasyRec evaluates at every ``checkpoint`` where it has data."""
    when: dict[str, Any] = {}
    if checkpoint is not None:
        when = {"every_steps": checkpoint.every_steps, "every_epochs": checkpoint.every_epochs}
    if block is None:
        return Evaluate(batch_size=batch_size, **when)
    return block.make(
        Evaluate,
        **when,
        steps=block["num_steps"],
        batch_size=batch_size,
        use_ema=block["use_dense_ema"],
        log_every_steps=block["log_step_count_steps"] or None,
    )


def _length(block: Block, accumulate: int) -> dict[str, Any]:
    steps, epochs = block["num_steps"], block["num_epochs"]
    lines = [block.place(field)[1] for field in ("num_steps", "num_epochs")]
    if steps and epochs and (lines[0] == 0) != (lines[1] == 0):  # the command line counts
        block.note("the command line has the other", "num_epochs" if lines[0] == 0 else "num_steps")
        steps, epochs = (steps, None) if lines[0] == 0 else (None, epochs)
    if bool(steps) == bool(epochs):
        given = "both" if steps else "neither"
        block.fail(f"give either num_steps or num_epochs, above 0, got {given}", "num_steps")
    return {"epochs": epochs} if epochs else {"steps": in_steps(block, "num_steps", steps, accumulate)}


def _decay(block: Block) -> float:
    decay: float = block["decay"]
    if not 0 <= decay < 1:
        block.fail(f"must be at least 0 and below 1, got {decay:g}", "decay")
    return decay


def checkpoint_of(block: Block, best_by: BestBy | None) -> Checkpoint:
    """Return when to save: by epochs where given, else by steps. 0 means never by steps, and keep everything."""
    accumulate, keep = block["gradient_accumulation_steps"] or 1, block["keep_checkpoint_max"] or None
    if block["save_checkpoints_epochs"]:
        block.note("save_checkpoints_epochs counts", "save_checkpoints_steps")
        return Checkpoint(every_epochs=block["save_checkpoints_epochs"], keep=keep, best_by=best_by)
    every = block["save_checkpoints_steps"]
    if "save_checkpoints_steps" in block:
        every = in_steps(block, "save_checkpoints_steps", every, accumulate)
    else:  # the default need not be a multiple
        every = max(1, every // accumulate)
    return Checkpoint(every_steps=every or None, keep=keep, best_by=best_by)


def _summaries(block: Block) -> dict[str, Any]:
    """Return the summaries: TorchEasyRec always writes the loss and the learning rate, and adds the chosen ones."""
    asked, known = block["tensorboard_summaries"], get_args(Summary)
    for summary in asked:
        if summary not in known:
            block.fail(f"unknown summary '{summary}': {nearest(summary, known)}", "tensorboard_summaries")
    return {"summaries": tuple(dict.fromkeys(("loss", "learning_rate", *asked)))} if asked else {}


def best_by(block: Block | None, tasks: Mapping[str, Task]) -> BestBy | None:
    """Return the criterion of the best checkpoint; None: the newest one is exported."""
    if block is None:
        return None
    kind = block["exporter_type"]
    if kind not in ("latest", "best"):
        block.fail(f"must be 'latest' or 'best', got {kind!r}", "exporter_type")
    if kind == "latest":
        block.note("exporter_type is latest", "best_exporter_metric", "metric_larger_is_better")
        return None
    names = metric_names(tasks)
    wanted: str = block["best_exporter_metric"]
    if wanted not in names:
        block.fail(f"there is no metric '{wanted}'; the metrics are {', '.join(names)}", "best_exporter_metric")
    return BestBy(metric=names[wanted], mode="max" if block["metric_larger_is_better"] else "min")


def metric_names(tasks: Mapping[str, Task]) -> dict[str, str]:
    """Return our names of the metrics by TorchEasyRec's, such as ``recall@5`` or ``auc_ctr``."""
    names = {}
    for ours, use in named_metrics(tasks).items():
        short = registry.name_of(use.metric)
        theirs = _RENAMED.get(short, short)
        if short == "recall_at_k":
            theirs = f"recall@{getattr(use.metric, 'top_k', '')}"
        names[theirs if len(tasks) == 1 else f"{theirs}_{use.task}"] = ours
    return names


_RENAMED = {"mae": "mean_absolute_error", "mse": "mean_squared_error"}


def check_precision(block: Block | None, train: Train, use_ema: bool | None) -> None:
    """Raise an error where an export would differ from training: here it has the same precision and parameters."""
    if block is None:
        return
    if "mixed_precision" in block and PRECISIONS.get(block["mixed_precision"]) != train.precision:
        block.fail(
            "not supported: a model is exported in the precision of its training, mixed_precision of train_config",
            "mixed_precision",
        )
    averaged = train.ema is not None if use_ema is None else use_ema
    if block["use_dense_ema"] is not None and block["use_dense_ema"] != averaged:
        option = "--ema" if block["use_dense_ema"] else "--no-ema"
        block.fail(f"differs from evaluation; remove it, and add {option} to sparrow export", "use_dense_ema")


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
    # Our rules have the names of the messages: FusedRowWiseAdagradOptimizer is RowwiseAdagrad.
    name = optimizer.kind.removeprefix("Fused").removesuffix("Optimizer").replace("RowWise", "Rowwise")
    rule: rules.Rule = record(optimizer, getattr(rules, name), **options)
    return rule


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
        "optimizer": record(optimizer, getattr(dense, optimizer.kind.removesuffix("Optimizer"))),
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
    # Our schedules have the names of the messages: CosineAnnealingLR is CosineAnnealing.
    name = rate.kind.removesuffix("LR").replace("ManualStep", "ManualSteps")
    made: schedules.Schedule = rate.make(getattr(schedules, name), lr, **fields)
    return made


def in_steps(block: Block, field: str, count: int, accumulate: int) -> int:
    """Return a number of micro-batches as a number of optimizer steps."""
    if count % accumulate:
        block.fail(
            f"counts micro-batches, of which gradient_accumulation_steps makes {accumulate} a step; "
            f"{count} is not a multiple of it",
            field,
        )
    return count // accumulate
