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

_NAMES = {
    "sparrow.embedding": (
        *("Dynamic", "Embedder", "EmbeddingState", "FeatureSpec", "HostMemory", "Jagged", "PackedBatch", "Placement"),
        *("Ragged", "RowGrads", "Sequence", "Sizes", "TableSpec"),
    ),
    "sparrow.frames": ("fit", "guess"),
    "sparrow.kernels": ("backends",),
    "sparrow.optimizer": ("Optimizer",),
    "sparrow.planning": ("plan",),
    "sparrow.rules": ("Rule",),
}
"""The public names that modules hold; the others are modules."""


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    if name in __all__:
        return importlib.import_module(f"sparrow.{'embedding.layers.' * (name in ('linen', 'nnx'))}{name}")
    raise AttributeError(f"module 'sparrow' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = ["Dynamic", "Embedder", "EmbeddingState", "FeatureSpec", "HostMemory", "Jagged", "PackedBatch", "Placement"]
__all__ += ["Ragged", "RowGrads", "Sequence", "Sizes", "TableSpec", "linen", "nnx"]
__all__ += ["Optimizer", "Rule", "__version__", "backends", "fit", "guess", "plan"]
__all__ += ["checkpoint", "config", "data", "dense", "exports", "losses", "metrics", "models"]
__all__ += ["rules", "runs", "schedules", "serving"]
