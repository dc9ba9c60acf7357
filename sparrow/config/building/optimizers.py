"""From a config to the objects that train: rules of tables, the dense optimizer, `sparrow.Optimizer`; epochs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import optax

from sparrow import dense
from sparrow.config.loading.section import Section
from sparrow.config.sections.config import Config
from sparrow.config.sections.train import DenseGroup, DenseOptimizer, Train
from sparrow.embedding import Embedder
from sparrow.errors import ConfigError, Path, problems_of
from sparrow.optimizer import Optimizer
from sparrow.rules import Rule
from sparrow.schedules import Schedule, with_steps_per_epoch


def table_rules(train: Train, tables: Iterable[str]) -> dict[str, Rule]:
    """Return the rule of each table: the first of ``table_optimizers`` that matches its complete name, or the default.

    A pattern that matches no table, and a table that two entries match, are errors that list the tables.
    """
    entries = train.table_optimizers
    rules = [
        _rule(entry.optimizer, ("train", "table_optimizers", index, "optimizer")) for index, entry in enumerate(entries)
    ]
    default = _rule(train.sparse_optimizer, ("train", "sparse_optimizer"))
    with problems_of("train", "table_optimizers"):
        assigned = dense.assign([entry.tables for entry in entries], tables)
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
        raise ConfigError(problem, at=where)


def counts_epochs(config: Config) -> bool:
    """Return whether a schedule of the config lacks the length of an epoch."""
    return epochs_in_steps(config, 1) != config


def epochs_in_steps(config: Config, steps_per_epoch: int) -> Config:
    """Return the config with the length of an epoch in all schedules that lack it.

    >>> from sparrow.config import loads
    >>> text = '''
    ... train:
    ...   sparse_optimizer: sgd
    ...   dense_optimizer:
    ...     optimizer: adam
    ...     learning_rate: {name: exponential_decay, lr: 1.0, decay_size: 2, decay_factor: 0.5, by_epoch: true}
    ...   batch_size: 1
    ...   epochs: 3
    ... tasks: {click: {label: clicked, losses: [l2]}}
    ... '''
    >>> epochs_in_steps(loads(text), 10).train.dense_optimizer.learning_rate.steps_per_epoch
    10
    """
    return config.model_copy(update={"train": _told(config.train, steps_per_epoch)})


def _told(value: Any, steps: int) -> Any:
    if isinstance(value, Section):
        return value.model_copy({name: _told(held, steps) for name, held in vars(value).items()})
    if isinstance(value, Rule):
        rates = {field.name: _told(getattr(value, field.name), steps) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **rates)
    if isinstance(value, Mapping):
        return {name: _told(item, steps) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_told(item, steps) for item in value)
    return with_steps_per_epoch(value, steps) if callable(value) else value
