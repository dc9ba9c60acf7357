"""From a config to the objects that train: rules of tables, the dense optimizer, `sparrow.Optimizer`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import optax

from sparrow import dense
from sparrow.config.errors import ConfigError, Path, Problem
from sparrow.config.train import DenseGroup, DenseOptimizer, Train
from sparrow.embedding import Embedder
from sparrow.rules import Rule
from sparrow.schedules import Schedule, with_steps_per_epoch
from sparrow.training import Optimizer

Rate = float | Callable[[Any], Any]


def table_rules(train: Train, tables: Iterable[str], steps_per_epoch: int | None = None) -> dict[str, Rule]:
    """The rule of each table: the first of ``table_optimizers`` whose pattern matches its whole name, or the default.

    A pattern that matches no table, and a table that two entries match, are errors that list the tables.
    """
    entries = train.table_optimizers
    rules = [
        _rule(entry.optimizer, steps_per_epoch, ("train", "table_optimizers", index, "optimizer"))
        for index, entry in enumerate(entries)
    ]
    default = _rule(train.sparse_optimizer, steps_per_epoch, ("train", "sparse_optimizer"))
    try:
        assigned = dense.assign([entry.tables for entry in entries], tables)
    except ValueError as error:
        raise ConfigError([Problem(("train", "table_optimizers"), str(error))]) from None
    return {table: default if index is None else rules[index] for table, index in assigned.items()}


def dense_optimizer(
    section: DenseOptimizer, steps_per_epoch: int | None = None
) -> tuple[optax.GradientTransformationExtraArgs, dict[str, Callable[[Any], Any]]]:
    """The transformation of the dense parameters, and the schedule of each part; ``"main"`` is the rest."""
    where: Path = ("train", "dense_optimizer")
    clip: dict[str, Any] = {"clip_norm": section.clip_norm, "clip_value": section.clip_value}
    if not section.parts:
        tx, schedule = dense.build(section.optimizer, **_group(section, steps_per_epoch, where), **clip)
        return tx, {"main": schedule}
    parts = {
        name: dense.part(part.patterns, part.optimizer, **_group(part, steps_per_epoch, (*where, "parts", name)))
        for name, part in section.parts.items()
    }
    main = dense.build(section.optimizer, **_group(section, steps_per_epoch, where))
    return dense.build_parts(main, parts, **clip)


def optimizer(train: Train, embedder: Embedder, steps_per_epoch: int | None = None) -> Optimizer:
    """The optimizer of tables and dense parameters together. The embedder's tables already have their rules."""
    tx, _ = dense_optimizer(train.dense_optimizer, steps_per_epoch)
    return Optimizer(
        embedder,
        tx,
        clip_global_norm=train.clip_global_norm,
        precision=train.precision,
        loss_scale=train.loss_scale,
        skip_nonfinite=train.skip_nonfinite,
        ema=train.ema,
    )


def _group(group: DenseGroup, steps_per_epoch: int | None, where: Path) -> dict[str, Any]:
    return {
        "learning_rate": _timed(group.learning_rate, steps_per_epoch, (*where, "learning_rate")),
        "weight_decay": group.weight_decay,
        "l2": group.l2,
        "weight_decay_mask": group.weight_decay_mask,
    }


def _rule(rule: Rule, steps_per_epoch: int | None, where: Path) -> Rule:
    scheduled: dict[str, Any] = {
        field.name: _timed(getattr(rule, field.name), steps_per_epoch, (*where, field.name))
        for field in dataclasses.fields(rule)
        if callable(getattr(rule, field.name))
    }
    return dataclasses.replace(rule, **scheduled) if scheduled else rule


def _timed(rate: Rate, steps_per_epoch: int | None, where: Path) -> Rate:
    """The rate; a schedule that counts epochs is told how long one is."""
    if not isinstance(rate, Schedule) or not rate.by_epoch or rate.steps_per_epoch is not None:
        return rate
    if steps_per_epoch is None:
        raise ConfigError(
            [
                Problem(
                    where, "counts epochs (by_epoch), and how many steps an epoch has is not known; add steps_per_epoch"
                )
            ]
        )
    return with_steps_per_epoch(rate, steps_per_epoch)
