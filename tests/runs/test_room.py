"""The memory that a run needs, before it is allocated."""

import types

import pytest

import sparrow as sp
from sparrow.config import ConfigError
from sparrow.runs.loop import room
from sparrow.runs.loop.places import Place


def embedder(local, count):
    """Tables of 4 MB, of which this process holds the rows of ``local`` of ``count`` devices."""
    spec = sp.TableSpec(name="items", vocabulary_size=250_000, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    made = sp.Embedder([sp.FeatureSpec(name="item", table_spec=spec)])
    shards = types.SimpleNamespace(local=tuple(range(local)), count=count)
    return types.SimpleNamespace(init=made.init, stacks=made.stacks, shards=shards)


def test_a_process_needs_its_share(monkeypatch):
    monkeypatch.setattr(room, "device_memory", lambda: ())
    monkeypatch.setattr(room, "host_memory", lambda: Place("host", 3 << 20, 3 << 20))
    room.refuse_large_tables(embedder(2, 4))
    with pytest.raises(ConfigError, match="tables with their slots need"):
        room.refuse_large_tables(embedder(4, 4))
