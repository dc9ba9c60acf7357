"""Tables in host memory behind a cache on the GPU: every read has the values of tables on the device."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


@pytest.mark.parametrize("reads", [False, True], ids=["beside", "looked up early"])
def test_rows_that_are_still_on_their_way_are_read_in_full(monkeypatch, reads):
    """`prefetch` brings rows that the step itself looks up, and that leave again unless an update ends the step."""
    found = []
    for apart in (False, True):
        emb = embedder(monkeypatch, apart=apart)

        @jax.jit
        def step(state, batch, following, emb=emb):
            state, batch = emb.assign(state, batch)
            state = emb.prefetch(state, [following], jnp.array(True))
            early = emb.lookup(state, following) if reads else {}
            acts = emb.lookup(state, batch)
            return emb.update(state, batch, jax.tree.map(lambda act: 1 + act, acts)), (early, acts)

        begin = jax.jit(lambda state, batch, emb=emb: emb.prefetch(state, [batch], jnp.array(True)))
        rng = np.random.default_rng(0)
        batches = [
            emb.pack({"plain": rng.integers(0, ROWS, BATCH), "raw": rng.integers(0, 60, BATCH) * 977}) for _ in range(9)
        ]
        state, seen = emb.init(jax.random.key(0)), []
        for batch, following in itertools.pairwise(batches):
            state, read = step(state, batch, following)
            seen.append(read)
        ahead = begin(state, batches[0])  # never finished by an update
        seen.append(emb.lookup(ahead, batches[0]))
        found.append((seen, [(emb.table(ahead, name), emb.slots(ahead, name)) for name in ("plain", "raw")]))
        if apart:
            assert sum(int(held.slots.totals[:, 1, 0].sum()) for held in state.caches.values()) > 10  # rows left
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(np.asarray(a), np.asarray(b)), *found)
