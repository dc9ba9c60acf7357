"""Sparrow: recommendation models with very large embedding tables, trained in JAX.

``import sparrow as sp`` imports nothing else: every part is imported when it is first used. The embedder, the rules and
the schedules need only jax, numpy and optax.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from sparrow.versions import __version__

if TYPE_CHECKING:
    from sparrow import (
        checkpoint,
        config,
        data,
        dense,
        exports,
        losses,
        metrics,
        models,
        rules,
        runs,
        schedules,
        serving,
    )
    from sparrow.embedding import (
        Dynamic,
        Embedder,
        EmbeddingState,
        FeatureSpec,
        HostMemory,
        Jagged,
        PackedBatch,
        Placement,
        Ragged,
        RowGrads,
        Sequence,
        Sizes,
        TableSpec,
    )
    from sparrow.embedding.layers import linen, nnx
    from sparrow.frames import fit, guess
    from sparrow.kernels import backends
    from sparrow.optimizer import Optimizer
    from sparrow.planning import plan
    from sparrow.rules import Rule

_LAZY = {
    "Dynamic": "sparrow.embedding:Dynamic",
    "Embedder": "sparrow.embedding:Embedder",
    "EmbeddingState": "sparrow.embedding:EmbeddingState",
    "FeatureSpec": "sparrow.embedding:FeatureSpec",
    "HostMemory": "sparrow.embedding:HostMemory",
    "Jagged": "sparrow.embedding:Jagged",
    "PackedBatch": "sparrow.embedding:PackedBatch",
    "Placement": "sparrow.embedding:Placement",
    "Ragged": "sparrow.embedding:Ragged",
    "RowGrads": "sparrow.embedding:RowGrads",
    "Sequence": "sparrow.embedding:Sequence",
    "Sizes": "sparrow.embedding:Sizes",
    "TableSpec": "sparrow.embedding:TableSpec",
    "Rule": "sparrow.rules:Rule",
    "backends": "sparrow.kernels:backends",
    "Optimizer": "sparrow.optimizer:Optimizer",
    "checkpoint": "sparrow.checkpoint",
    "config": "sparrow.config",
    "data": "sparrow.data",
    "dense": "sparrow.dense",
    "exports": "sparrow.exports",
    "fit": "sparrow.frames:fit",
    "guess": "sparrow.frames:guess",
    "linen": "sparrow.embedding.layers.linen",
    "losses": "sparrow.losses",
    "metrics": "sparrow.metrics",
    "models": "sparrow.models",
    "nnx": "sparrow.embedding.layers.nnx",
    "plan": "sparrow.planning:plan",
    "rules": "sparrow.rules",
    "runs": "sparrow.runs",
    "schedules": "sparrow.schedules",
    "serving": "sparrow.serving",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, _, attribute = _LAZY[name].partition(":")
        value = importlib.import_module(module)
        return getattr(value, attribute) if attribute else value
    raise AttributeError(f"module 'sparrow' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "Dynamic",
    "Embedder",
    "EmbeddingState",
    "FeatureSpec",
    "HostMemory",
    "Jagged",
    "Optimizer",
    "PackedBatch",
    "Placement",
    "Ragged",
    "RowGrads",
    "Rule",
    "Sequence",
    "Sizes",
    "TableSpec",
    "__version__",
    "backends",
    "checkpoint",
    "config",
    "data",
    "dense",
    "exports",
    "fit",
    "guess",
    "linen",
    "losses",
    "metrics",
    "models",
    "nnx",
    "plan",
    "rules",
    "runs",
    "schedules",
    "serving",
]
