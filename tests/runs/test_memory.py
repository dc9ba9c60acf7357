"""The memory that a run needs, before it is allocated."""

import types

import pytest

import sparrow as sp
from sparrow.config import ConfigError
from sparrow.embedding.sharding.placement import everywhere
from sparrow.runs.step import memory
from sparrow.runs.step.memory import Memory


def embedder(local, count):
    """Tables of 4 MB, of which this process holds the rows of ``local`` of ``count`` devices."""
    spec = sp.TableSpec(name="items", vocabulary_size=250_000, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    made = sp.Embedder([sp.FeatureSpec(name="item", table_spec=spec)])
    shards = types.SimpleNamespace(local=tuple(range(local)), count=count)
    sharded = types.SimpleNamespace(places={"items": everywhere(count)})
    return types.SimpleNamespace(init=made.init, stacks=made.stacks, shards=shards, sharded=sharded)


def test_a_process_needs_its_share(monkeypatch):
    monkeypatch.setattr(memory, "device_memory", lambda: ())
    monkeypatch.setattr(memory, "host_memory", lambda: Memory("host", 3 << 20, 3 << 20))
    memory.refuse_large_tables(embedder(2, 4))
    with pytest.raises(ConfigError, match="tables with their slots need"):
        memory.refuse_large_tables(embedder(4, 4))
