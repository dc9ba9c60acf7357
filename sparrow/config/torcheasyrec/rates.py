"""Learning rates: TorchEasyRec's schedules as ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparrow import schedules
from sparrow.config.torcheasyrec.blocks import Block


def learning_rate(optimizer: Block, rate: Block, accumulate: int) -> float | Callable[[Any], Any]:
    """Return the rate of an optimizer: a constant number, or a schedule whose base is the optimizer's ``lr``.

    TorchEasyRec's schedules count micro-batches, ours count optimizer steps: with ``accumulate`` micro-batches in a
    step, sizes in steps are divided by it. Sizes in epochs stay.
    """
    lr: float = optimizer["lr"]
    if rate.kind == "ConstantLR":
        return lr
    by_epoch: bool = rate["by_epoch"]

    def size(field: str, value: int | None = None) -> int:
        count: int = rate[field] if value is None else value
        return count if by_epoch else in_steps(rate, field, count, accumulate)

    with rate.locating():
        match rate.kind:
            case "ExponentialDecayLR":
                return schedules.exponential_decay(
                    lr,
                    decay_size=size("decay_size"),
                    decay_factor=rate["decay_factor"],
                    staircase=rate["staircase"],
                    warmup_size=size("warmup_size"),
                    warmup_learning_rate=rate["warmup_learning_rate"],
                    min_learning_rate=rate["min_learning_rate"],
                    by_epoch=by_epoch,
                )
            case "ManualStepLR":
                return schedules.manual_steps(
                    lr,
                    schedule_sizes=tuple(size("schedule_sizes", value) for value in rate["schedule_sizes"]),
                    learning_rates=rate["learning_rates"],
                    warmup=rate["warmup"],
                    by_epoch=by_epoch,
                )
            case "CosineAnnealingLR":
                return schedules.cosine_annealing(
                    lr,
                    t_max=size("T_max"),
                    warmup_size=size("warmup_size"),
                    warmup_learning_rate=rate["warmup_learning_rate"],
                    min_learning_rate=rate["min_learning_rate"],
                    by_epoch=by_epoch,
                )
            case _:
                return schedules.cosine_annealing_warm_restarts(
                    lr,
                    t_0=size("T_0"),
                    t_mult=rate["T_mult"],
                    warmup_size=size("warmup_size"),
                    warmup_learning_rate=rate["warmup_learning_rate"],
                    min_learning_rate=rate["min_learning_rate"],
                    by_epoch=by_epoch,
                )


def in_steps(block: Block, field: str, count: int, accumulate: int) -> int:
    """Return a number of micro-batches as a number of optimizer steps."""
    if count % accumulate:
        block.fail(
            f"counts micro-batches, of which gradient_accumulation_steps makes {accumulate} a step; "
            f"{count} is not a multiple of it",
            field,
        )
    return count // accumulate
