"""Tables in host memory apart from the device's, with a small cache: the bits of tables on the device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow.embedding import host_memory

CASES = {
    "native": ("native", {}, sp.rules.Adam(0.1)),
    "dynamic, rounded": ("native", {"dtype": "bfloat16", "dynamic": sp.Dynamic()}, sp.rules.RowwiseAdagrad(0.1)),
    "dynamic, xla": ("xla", {"dtype": "bfloat16", "dynamic": sp.Dynamic()}, sp.rules.RowwiseAdagrad(0.1)),
}


def embedder(monkeypatch, case, *, apart, cache=24):
    monkeypatch.setattr(host_memory, "is_apart", lambda: apart)
    backend, options, rule = CASES[case]
    tables = [
        sp.TableSpec(
            name=name,
            vocabulary_size=rows,
            embedding_dim=6,
            optimizer=rule,
            memory=sp.HostMemory(cache=cache),
            **options,
        )
        for name, rows in (("a", 100), ("b", 60))
    ]
    return sp.Embedder([sp.FeatureSpec(name=f"of_{t.name}", table_spec=t) for t in tables], backend=backend)


def step_of(emb):
    @jax.jit
    def step(state, batches, grads):
        made = []
        for batch in batches:
            state, batch = emb.assign(state, batch)
            made.append(batch)
        acts = [emb.lookup(state, batch) for batch in made]
        rows = [
            emb.row_grads(b, jax.tree.map(lambda a, g: 0.1 * a + g, x, grads)) for b, x in zip(made, acts, strict=True)
        ]
        return emb.apply(state, rows[0] + rows[1]), acts

    return step


def batches_of(emb, rng):
    for _ in range(2):
        lists = [rng.integers(0, 100, rng.integers(0, 4)).tolist() for _ in range(6)]
        yield emb.pack({"of_a": lists, "of_b": rng.integers(0, 60, 6)}, capacity=18)


def trained(emb, state, steps, rng):
    step, seen = step_of(emb), []
    for _ in range(steps):
        batches = tuple(batches_of(emb, rng))
        grads = {name: rng.standard_normal((6, 6)).astype(np.float32) for name in ("of_a", "of_b")}
        seen.append(emb.lookup(state, batches[0]))  # without a change
        state, acts = step(state, batches, grads)
        seen.append(acts)
    return state, seen


def logical(emb, state):
    return {name: (emb.table(state, name), emb.slots(state, name)) for name in ("a", "b")}


def assert_same(a, b):
    jax.tree.map(lambda x, y: np.testing.assert_array_equal(np.asarray(x), np.asarray(y)), a, b)


BY_XLA = pytest.param("dynamic, xla", marks=pytest.mark.slow)  # 10 s to compile; one step of it is quick, below


@pytest.mark.parametrize("case", ["native", "dynamic, rounded", BY_XLA])
def test_a_small_cache_gives_the_bits_of_tables_on_the_device(monkeypatch, case):
    found = []
    for apart in (False, True):
        emb = embedder(monkeypatch, case, apart=apart)
        assert [stack.apart for stack in emb.stacks] == [apart]
        state, seen = trained(emb, emb.init(jax.random.key(0)), 10, np.random.default_rng(0))
        found.append((seen, logical(emb, state)))
    assert state.tables["a+1"].shape == (48, 6)
    assert int(state.caches["a+1"].slots.totals[0, 1, 0]) > 10  # rows have left the cache
    assert_same(*found)
    values = np.ones((60, 6), np.float32)
    state = emb.with_table(state, "b", values)
    assert np.array_equal(emb.table(state, "b"), values)
    assert_same(emb.table(state, "a"), found[1][1]["a"][0])


def test_a_step_with_more_rows_than_the_cache_has_changes_nothing(monkeypatch):
    emb = embedder(monkeypatch, "native", apart=True, cache=4)
    state = emb.init(jax.random.key(0))
    before = logical(emb, state)
    batch = emb.pack({"of_a": np.arange(6), "of_b": np.arange(6)})
    with pytest.raises(ValueError, match=r"one step needs 6 rows on the device, and the cache holds 4; make"):
        emb.assign(state, batch)
    state, _ = jax.jit(emb.assign)(state, batch)
    assert not emb.has_rows(state)
    assert_same(before, logical(emb, state))
    state = emb.without_shortage(state)
    state, batch = emb.assign(state, emb.pack({"of_a": np.arange(4), "of_b": np.arange(4)}))
    assert np.array_equal(emb.lookup(state, batch)["of_a"], before["a"][0][:4])


def test_ids_are_not_admitted_where_the_cache_has_no_space_for_their_rows(monkeypatch):
    emb = embedder(monkeypatch, "dynamic, xla", apart=True, cache=4)
    state = emb.init(jax.random.key(0))
    before = logical(emb, state)
    assign, few = jax.jit(emb.assign), {name: np.arange(6) % 4 for name in ("of_a", "of_b")}
    state, _ = assign(state, emb.pack({"of_a": np.arange(6), "of_b": np.arange(6)}))
    assert "needs 6 rows on the device" in emb.shortage(state)
    assert [emb.held(state, name).admitted for name in ("a", "b")] == [0, 0]
    assert_same(before, logical(emb, state))
    state, batch = assign(emb.without_shortage(state), emb.pack(few))
    other = embedder(monkeypatch, "dynamic, xla", apart=False)
    other_state, other_batch = jax.jit(other.assign)(other.init(jax.random.key(0)), other.pack(few))
    assert_same(emb.lookup(state, batch), other.lookup(other_state, other_batch))


def test_wrong_uses_are_errors(monkeypatch):
    emb = embedder(monkeypatch, "native", apart=True)
    state, batch = emb.init(jax.random.key(0)), emb.pack({"of_a": np.arange(6), "of_b": np.arange(6)})
    with pytest.raises(ValueError, match="without rows on the device: call state, batch"):
        emb.update(state, batch, emb.zeros(batch))
    with pytest.raises(TypeError, match=r"outside of jax\.jit"):
        jax.jit(lambda state: emb.table(state, "a"))(state)
    with pytest.raises(ValueError, match="are not tracked yet"):
        emb.tracked(state)
    shapes = jax.eval_shape(emb.init, jax.random.key(0))
    assert emb.arrays(shapes, emb.stacks[0])[""].shape == (160, 6)
    assert jnp.array_equal(shapes.caches["a+1"].address.shape, (2,))
