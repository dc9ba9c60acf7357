"""Every kind of record that a config may hold, and the registry that knows its names."""

from __future__ import annotations

from typing import Any, Final

from sparrow.data.features import Feature
from sparrow.data.features import registry as FEATURES
from sparrow.data.sources import Source
from sparrow.data.sources import registry as SOURCES
from sparrow.dense import OPTIMIZERS, DenseOptimizer
from sparrow.embedding import INITIALIZERS, Initializer
from sparrow.losses import Loss
from sparrow.losses import registry as LOSSES
from sparrow.metrics import Metric
from sparrow.metrics import registry as METRICS
from sparrow.models import ModelRecord
from sparrow.models import registry as MODELS
from sparrow.registry import Registry
from sparrow.rules import RULES, Rule
from sparrow.schedules import SCHEDULES

BASES: Final[tuple[tuple[type[Any], Registry[Any]], ...]] = (
    (Rule, RULES),
    (DenseOptimizer, OPTIMIZERS),
    (Loss, LOSSES),
    (Metric, METRICS),
    (Feature, FEATURES),
    (Source, SOURCES),
    (ModelRecord, MODELS),
    (Initializer, INITIALIZERS),
)
"""What the records of each registry derive from. A schedule is any function of the step."""

REGISTRIES: Final[tuple[Registry[Any], ...]] = (SCHEDULES, *(registry for _, registry in BASES))


def key_of(registry: Registry[Any]) -> str:
    """The field that says which record it is: a feature has a ``kind``, for its ``name`` is its own."""
    return "kind" if registry is FEATURES else "name"


def is_record(registry: Registry[Any], value: Any) -> bool:
    """Whether ``value`` is of the registry's kind already; it need not have a name there."""
    if registry is SCHEDULES:
        return callable(value)
    return any(isinstance(value, base) for base, of in BASES if of is registry)


__all__ = [
    "BASES",
    "FEATURES",
    "INITIALIZERS",
    "LOSSES",
    "METRICS",
    "MODELS",
    "OPTIMIZERS",
    "REGISTRIES",
    "RULES",
    "SCHEDULES",
    "SOURCES",
    "is_record",
    "key_of",
]
