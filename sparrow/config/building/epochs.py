"""Schedules that count epochs get the number of optimizer steps per epoch once, when a run starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from sparrow.config.sections.config import Config
from sparrow.rules import Rule
from sparrow.schedules import with_steps_per_epoch


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
    if isinstance(value, BaseModel):
        return value.model_copy(update={name: _told(getattr(value, name), steps) for name in type(value).model_fields})
    if isinstance(value, Rule):
        rates = {field.name: _told(getattr(value, field.name), steps) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **rates)
    if isinstance(value, Mapping):
        return {name: _told(item, steps) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_told(item, steps) for item in value)
    return with_steps_per_epoch(value, steps) if callable(value) else value
