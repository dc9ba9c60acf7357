"""Options of a config that cannot be honoured together with its tables."""

from __future__ import annotations

from sparrow.config import Config, ConfigError, Problem
from sparrow.embedding import Embedder


def refuse_calls(config: Config, embedder: Embedder) -> None:
    """Raise `ConfigError` where ``train.steps_per_call`` cannot be honoured: where the host works between steps."""
    if config.train.steps_per_call == 1:
        return
    grows = _dynamic(embedder)
    why = None
    if config.train.pipeline == "stale":
        why = "cannot be used with train.pipeline: stale so far; leave one of them out"
    elif embedder.shards is not None:
        why = "works on one device so far; leave it or train.mesh out"
    elif grows:
        why = f"cannot be used with dynamic tables such as '{grows[0]}', which get rows between the steps; leave it out"
    if why is not None:
        raise ConfigError([Problem(("train", "steps_per_call"), why)])


def refuse_stale(config: Config, embedder: Embedder) -> None:
    """Raise `ConfigError` where ``train.pipeline: stale`` cannot be honoured: where rows move between the steps."""
    if config.train.pipeline != "stale":
        return
    if _dynamic(embedder):
        text = "stale looks rows up before the last update, and rows of tables that are dynamic may move with it"
        raise ConfigError([Problem(("train", "pipeline"), f"{text}; leave it out")])


def _dynamic(embedder: Embedder) -> list[str]:
    return [name for name, table in embedder.tables.items() if table.dynamic is not None]
