"""Tables in host memory behind a cache on the GPU: every read has the values of tables on the device."""

import itertools

import jax
import numpy as np

import sparrow as sp
from sparrow.embedding import host_memory

ROWS, SLOTS, BATCH = 40, 14, 6


def embedder(monkeypatch, *, apart):
    monkeypatch.setattr(host_memory, "is_apart", lambda: apart)
    memory = {"optimizer": sp.rules.RowwiseAdagrad(0.1), "memory": sp.HostMemory(cache=SLOTS)}
    plain = sp.TableSpec(name="plain", vocabulary_size=ROWS, embedding_dim=4, **memory)
    raw = sp.TableSpec(name="raw", vocabulary_size=ROWS, embedding_dim=4, dynamic=sp.Dynamic(), **memory)
    features = [sp.FeatureSpec(name=table.name, table_spec=table) for table in (plain, raw)]
    return sp.Embedder(features, backend="cuda")


def test_rows_that_are_looked_up_before_their_step(monkeypatch):
    """The rows of the next batch are read within a step, some of them from host memory."""
    found = []
    for apart in (False, True):
        emb = embedder(monkeypatch, apart=apart)

        @jax.jit
        def step(state, batch, following, emb=emb):
            state, batch = emb.assign(state, batch)
            early = emb.lookup(state, following)
            acts = emb.lookup(state, batch)
            return emb.update(state, batch, jax.tree.map(lambda act: 1 + act, acts)), (early, acts)

        rng = np.random.default_rng(0)
        batches = [
            emb.pack({"plain": rng.integers(0, ROWS, BATCH), "raw": rng.integers(0, 60, BATCH) * 977}) for _ in range(9)
        ]
        state, seen = emb.init(jax.random.key(0)), []
        for batch, following in itertools.pairwise(batches):
            state, read = step(state, batch, following)
            seen.append(read)
        seen.append(emb.lookup(state, batches[0]))
        found.append((seen, [(emb.table(state, name), emb.slots(state, name)) for name in ("plain", "raw")]))
        if apart:
            assert sum(int(held.slots.totals[:, 1, 0].sum()) for held in state.caches.values()) > 10  # rows left
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), *found)
