"""Options of a config that cannot be honoured together with its tables."""

from __future__ import annotations

from sparrow.config import Config, ConfigError, Problem
from sparrow.embedding import Embedder


def refuse_calls(config: Config, embedder: Embedder) -> None:
    """Raise `ConfigError` where ``train.steps_per_call`` cannot be honoured: where the host works between steps."""
    if config.train.steps_per_call == 1:
        return
    why = None
    if config.train.pipeline == "stale":
        why = "cannot be used with train.pipeline: stale so far; leave one of them out"
    elif embedder.shards is not None:
        why = "works on one device so far; leave it or train.mesh out"
    if why is not None:
        raise ConfigError([Problem(("train", "steps_per_call"), why)])
