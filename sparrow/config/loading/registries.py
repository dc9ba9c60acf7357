"""Every kind of record that a config may hold."""

from __future__ import annotations

from typing import Any, Final

from sparrow.data.computed import registry as COMPUTED
from sparrow.data.features import number_embeddings as NUMBER_EMBEDDINGS
from sparrow.data.features import registry as FEATURES
from sparrow.data.sources import registry as SOURCES
from sparrow.dense import OPTIMIZERS
from sparrow.embedding import INITIALIZERS
from sparrow.losses import registry as LOSSES
from sparrow.metrics import registry as METRICS
from sparrow.models import registry as MODELS
from sparrow.models.sequences import encoders as ENCODERS
from sparrow.registry import Registry
from sparrow.rules import RULES
from sparrow.schedules import SCHEDULES

REGISTRIES: Final[tuple[Registry[Any], ...]] = (
    SCHEDULES,
    RULES,
    OPTIMIZERS,
    LOSSES,
    METRICS,
    FEATURES,
    COMPUTED,
    NUMBER_EMBEDDINGS,
    SOURCES,
    MODELS,
    ENCODERS,
    INITIALIZERS,
)
