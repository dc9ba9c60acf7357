"""From a config to the objects that train: rules of tables, the dense optimizer, `sparrow.Optimizer`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import optax

from sparrow import dense
from sparrow.config.sections.train import DenseGroup, DenseOptimizer, Train
from sparrow.embedding import Embedder
from sparrow.errors import ConfigError, Path, Problem
from sparrow.optimizer import Optimizer
from sparrow.rules import Rule
from sparrow.schedules import Schedule


def table_rules(train: Train, tables: Iterable[str]) -> dict[str, Rule]:
    """Return the rule of each table: the first of ``table_optimizers`` that matches its complete name, or the default.

    A pattern that matches no table, and a table that two entries match, are errors that list the tables.
    """
    entries = train.table_optimizers
    rules = [
        _rule(entry.optimizer, ("train", "table_optimizers", index, "optimizer")) for index, entry in enumerate(entries)
    ]
    default = _rule(train.sparse_optimizer, ("train", "sparse_optimizer"))
    try:
        assigned = dense.assign([entry.tables for entry in entries], tables)
    except ValueError as error:
        raise ConfigError([Problem(("train", "table_optimizers"), str(error))]) from None
    return {table: default if index is None else rules[index] for table, index in assigned.items()}


def dense_optimizer(
    section: DenseOptimizer,
) -> tuple[optax.GradientTransformationExtraArgs, dict[str, Callable[[Any], Any]]]:
    """Return the transformation of the dense parameters, and the schedule of each part; ``"main"`` is the rest."""
    where: Path = ("train", "dense_optimizer")
    clip: dict[str, Any] = {
        "clip_norm": section.clip_norm,
        "clip_norm_type": float(section.clip_norm_type),
        "clip_value": section.clip_value,
    }
    if not section.parts:
        tx, schedule = dense.build(section.optimizer, **_group(section, where), **clip)
        return tx, {"main": schedule}
    parts = {
        name: dense.part(part.patterns, part.optimizer, **_group(part, (*where, "parts", name)))
        for name, part in section.parts.items()
    }
    main = dense.build(section.optimizer, **_group(section, where))
    return dense.build_parts(main, parts, **clip)


def optimizer(train: Train, embedder: Embedder) -> Optimizer:
    """Return the optimizer of tables and dense parameters together. The embedder's tables already have their rules."""
    tx, _ = dense_optimizer(train.dense_optimizer)
    return Optimizer(
        embedder,
        tx,
        clip_global_norm=train.clip_global_norm,
        precision=train.precision,
        loss_scale=train.loss_scale,
        skip_nonfinite=True,  # a step that is not finite never changes anything; train.non_finite decides what follows
        ema=train.ema,
    )


def _group(group: DenseGroup, where: Path) -> dict[str, Any]:
    _check_rate(group.learning_rate, (*where, "learning_rate"))
    return {
        "learning_rate": group.learning_rate,
        "weight_decay": group.weight_decay,
        "l2": group.l2,
        "weight_decay_mask": group.weight_decay_mask,
    }


def _rule(rule: Rule, where: Path) -> Rule:
    for field in dataclasses.fields(rule):
        _check_rate(getattr(rule, field.name), (*where, field.name))
    return rule


def _check_rate(rate: Any, where: Path) -> None:
    """Refuse a schedule that counts epochs and lacks the length of one."""
    if isinstance(rate, Schedule) and rate.by_epoch and rate.steps_per_epoch is None:
        problem = "counts epochs (by_epoch), and how many steps an epoch has is not known; add steps_per_epoch"
        raise ConfigError([Problem(where, problem)])
