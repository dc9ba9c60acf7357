"""Dynamic tables through the Embedder: raw ids, rows that start from their id, state that is saved and restored."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import sparrow as sp
from sparrow.data.hashing import hash_texts
from sparrow.embedding.dynamic import assigning
from sparrow.embedding.stacking import stable_hash


def embedder(rows: int = 8, name: str = "users", rule: sp.Rule | None = None, dtype: str = "float32", **dynamic):
    table = sp.TableSpec(
        name=name,
        vocabulary_size=rows,
        embedding_dim=4,
        optimizer=rule or sp.rules.Adagrad(0.1, initial_accumulator=0.5),
        dtype=dtype,
        dynamic=sp.Dynamic(**dynamic),
    )
    return sp.Embedder(
        [sp.FeatureSpec(name="user", table_spec=table), sp.FeatureSpec(name="friends", table_spec=table)]
    )


def assigned(emb, state, users, friends=None):
    friends = [[]] * len(users) if friends is None else friends
    return emb.assign(state, emb.pack({"user": users, "friends": friends}))


def trained(emb, state, users, friends=None):
    state, batch = assigned(emb, state, users, friends)
    grads = {name: jnp.ones(shape) for name, shape in emb.activation_shapes(batch).items()}
    return emb.update(state, batch, grads)


def test_a_row_starts_from_its_id_whenever_and_wherever_it_is_made():
    emb = embedder(unknown="zeros")
    for order in ([7, -1, 2**63], [2**63, 7, 3, -1]):
        users = np.array([key % 2**64 for key in order], np.uint64)
        state, batch = assigned(emb, emb.init(jax.random.key(0)), users)
        acts = emb.lookup(state, batch)["user"]
        halves = np.array([[x % 2**32, x % 2**64 >> 32] for x in order], np.uint32)
        np.testing.assert_array_equal(acts, initial_rows(emb.tables["users"], state.seed, jnp.array(halves)))
        assert len(np.unique(np.asarray(acts), axis=0)) == len(order)


def initial_rows(table, seed, ids):
    """(N, dim): where the rows of ``ids``, (N, 2) uint32, start."""
    function, numbers = assigning._program(table)
    hashes = jnp.full(len(ids), stable_hash(table.name), jnp.uint32)
    parameters = jnp.broadcast_to(jnp.array(numbers, jnp.float32), (len(ids), len(numbers)))
    return assigning._drawn(function, table.embedding_dim, table.dtype, seed, hashes, ids, parameters)


def test_features_share_a_vocabulary_and_missing_ids_are_masked():
    emb = embedder(unknown="zeros")
    users = np.ma.MaskedArray(np.array([-1, 5, 6]), [False, False, True])
    state, batch = assigned(emb, emb.init(jax.random.key(0)), users, [[-1, 5], [], [6]])
    acts = emb.lookup(state, batch)
    np.testing.assert_allclose(acts["friends"][0], acts["user"][0] + acts["user"][1], rtol=1e-6)
    assert not acts["user"][2].any()
    assert acts["friends"][2].any()
    assert set(emb.ids(state, "users").ids.tolist()) == {2**64 - 1, 5, 6}
    assert emb.held(state, "users").used == 3


def test_an_id_that_comes_back_starts_anew_with_its_slots():
    emb = embedder(rows=2, unknown="zeros")
    state, first = assigned(emb, emb.init(jax.random.key(0)), [1])
    start = np.asarray(emb.lookup(state, first)["user"][0])
    state = trained(emb, state, [1, 1])
    state = trained(emb, state, [2, 3])  # takes both rows
    state, batch = assigned(emb, state, [1])
    np.testing.assert_array_equal(emb.lookup(state, batch)["user"][0], start)
    row = dict(zip(*(array.tolist() for array in emb.ids(state, "users")), strict=True))[1]
    assert (np.asarray(emb.slots(state, "users")["accumulator"])[row] == 0.5).all()


@pytest.mark.parametrize("unknown", ["row", "zeros"])
def test_unknown_ids_share_a_trained_row_or_read_zeros(unknown):
    emb = embedder(admit=2, unknown=unknown)
    state = emb.init(jax.random.key(0))
    before = np.asarray(emb.table(state, "users")[0])
    state, batch = assigned(emb, state, [10, 11])
    acts = emb.lookup(state, batch)["user"]
    np.testing.assert_array_equal(acts, [before] * 2 if unknown == "row" else np.zeros((2, 4)))
    state = emb.update(state, batch, {"user": jnp.ones((2, 4)), "friends": jnp.zeros((2, 4))})
    assert (np.asarray(emb.table(state, "users")[0]) != before).any() == (unknown == "row")


def test_a_lookup_without_assign_finds_and_changes_nothing():
    emb = embedder(unknown="zeros")
    state = trained(emb, emb.init(jax.random.key(0)), [1])
    batch = emb.pack({"user": [1, 2], "friends": [[], []]})
    acts = jax.jit(emb.lookup)(state, batch)["user"]
    assert acts[0].any()
    assert not acts[1].any()
    with pytest.raises(ValueError, match=r"call state, batch = emb.assign\(state, batch\) at the head of the step"):
        emb.update(state, batch, {"user": acts, "friends": acts})


@pytest.mark.parametrize("backend", ["xla", "native"])
def test_a_step_beyond_capacity_changes_nothing(backend):
    emb = embedder(rows=3)
    emb = sp.Embedder(emb.features, backend=backend)
    change = dict.fromkeys(("user", "friends"), jnp.ones((1, 4)))
    step = jax.jit(lambda state, batch: emb.update(*emb.assign(state, batch), change))
    state = step(emb.init(jax.random.key(0)), emb.pack({"user": [1], "friends": [[]]}))
    with pytest.raises(ValueError, match=r"'users': one step needs 3 rows for its ids, and there are 2; [^\n]*$"):
        assigned(emb, state, [1, 2], [[3], []])
    new, _ = jax.jit(emb.assign)(state, emb.pack({"user": [4, 5], "friends": [[6], []]}))
    assert not emb.has_rows(new)
    assert emb.shortage(new).startswith("table 'users': one step needs 3 rows")
    for name in ("ids", "last", "totals"):
        np.testing.assert_array_equal(getattr(new.ids["users"], name), getattr(state.ids["users"], name))
    jax.tree.map(np.testing.assert_array_equal, (state.tables, state.slots), (new.tables, new.slots))


def test_when_is_false_nothing_changes():
    emb = embedder(unknown="zeros")
    state = trained(emb, emb.init(jax.random.key(0)), [1, 2])
    batch = emb.pack({"user": [1, 3], "friends": [[4], []]})
    kept, _ = jax.jit(lambda state, batch: emb.assign(state, batch, when=jnp.array(False)))(state, batch)
    assert emb.held(kept, "users") == emb.held(state, "users")
    jax.tree.map(np.testing.assert_array_equal, (state.tables, state.slots), (kept.tables, kept.slots))


@pytest.mark.parametrize("ids", [[1.5], np.array([np.nan]), [{}]])
def test_ids_that_are_none_are_refused(ids):
    with pytest.raises(TypeError, match="feature 'user': ids must be integers"):
        embedder().pack({"user": ids, "friends": [[]]})


def test_strings_are_ids_by_their_hash():
    emb = embedder()
    texts = ["Ada", "", "a longer name"]
    state, batch = assigned(emb, emb.init(jax.random.key(0)), np.array(texts), [["Ada"], [], []])
    assert sorted(emb.ids(state, "users").ids.tolist()) == sorted(hash_texts(pa.array(texts)).tolist())
    column = emb.pack({"user": pa.array(["Ada", None, "new"]), "friends": pa.array([["Ada", "new"], None, []])})
    acts = emb.lookup(state, column)
    np.testing.assert_array_equal(acts["user"][0], emb.lookup(state, batch)["user"][0])
    assert not acts["user"][1].any()


def test_micro_batches_of_one_step_do_not_take_each_others_rows():
    emb = embedder(rows=2, unknown="zeros")
    state, _ = assigned(emb, emb.init(jax.random.key(0)), [1])
    state, _ = assigned(emb, state, [2])
    with pytest.raises(ValueError, match="one step needs 3 rows"):
        assigned(emb, state, [3])


@pytest.mark.parametrize("options", [{}, {"admit": 2, "evict": "lfu"}, {"admit": 0.5, "expire_steps": 3}], ids=str)
def test_backends_and_scans_have_the_same_ids_and_rows(options):
    generator = np.random.default_rng(0)
    users = [generator.zipf(1.3, 16) % 30 * 977 + 2 * step for step in range(12)]
    results = []
    for backend in ("xla", "native"):
        emb = embedder(rows=40, rule=sp.rules.Adam(0.1), **options)
        emb = sp.Embedder(emb.features, backend=backend)

        def step(state, batch, emb=emb):
            state, batch = emb.assign(state, batch)
            acts = emb.lookup(state, batch)
            return emb.update(state, batch, {name: act + 0.1 for name, act in acts.items()}), acts["user"]

        batches = [emb.pack({"user": given, "friends": np.zeros((16, 0), np.int64)}) for given in users]
        state = emb.init(jax.random.key(0))
        one = state
        for batch in batches:
            one, _ = jax.jit(step)(one, batch)
        scanned, _ = jax.lax.scan(step, state, jax.tree.map(lambda *arrays: jnp.stack(arrays), *batches))
        results += [one, scanned]
    for other in results[1:]:
        np.testing.assert_allclose(results[0].tables["users"], other.tables["users"], rtol=1e-5)
        np.testing.assert_array_equal(results[0].ids["users"].ids, other.ids["users"].ids)


def test_saved_ids_come_back_to_as_many_more_and_fewer_rows():
    emb = embedder(rows=6, admit=2, waiting=4)
    state = trained(emb, emb.init(jax.random.key(0)), [8, 8, 9, 9, 7])
    saved = emb.saved_ids(state)["users"]
    again, sources = emb.with_ids(emb.init(jax.random.key(0)), {"users": type(saved).of(saved.arrays(), "users")})
    assert not sources
    for name in ("ids", "last", "counts", "pools", "totals"):
        np.testing.assert_array_equal(getattr(again.ids["users"], name), getattr(state.ids["users"], name))
    for rows in (4, 9):
        other = embedder(rows=rows, admit=2, waiting=4)
        restored, _ = other.with_ids(other.init(jax.random.key(0)), {"users": saved})
        assert set(other.ids(restored, "users").ids.tolist()) == {8, 9}
        assert other.held(restored, "users").waiting == 1
    small = embedder(rows=2)
    with pytest.raises(ValueError, match="saved with 2 ids in 6 rows; 2 of them do not fit into the 1 rows here"):
        small.with_ids(small.init(jax.random.key(0)), {"users": saved})
    for name, array in (("ids", saved.ids[:1]), ("last", saved.last[None]), ("waiting", np.zeros((2, 2), np.uint32))):
        with pytest.raises(ValueError, match="the ids of table 'users' are damaged"):
            type(saved).of({**saved.arrays(), name: array}, "users")
    with pytest.raises(ValueError, match="the ids of table 'users' were not saved"):
        type(saved).of({}, "users")


@pytest.mark.parametrize("evict", ["lru", "lfu"])
def test_a_full_table_of_one_group_comes_back_in_eight(evict, monkeypatch):
    monkeypatch.setattr("sparrow.embedding.stacking.LEAST_GROUPED", 10**6)
    emb = embedder(rows=1040, evict=evict, unknown="zeros")
    state = emb.init(jax.random.key(0))
    for ids in (range(1000, 1700), range(700), range(700), range(340)):
        state = trained(emb, state, list(ids))
    saved, before = emb.saved_ids(state)["users"], emb.held(state, "users").evicted
    monkeypatch.undo()
    emb = embedder(rows=1040, evict=evict, unknown="zeros")
    saved = type(saved).of({**saved.arrays(), "parts": saved.parts[:1]}, "users")  # as checkpoints had it
    new, sources = emb.with_ids(emb.init(jax.random.key(0)), {"users": saved})
    kept, held = set(emb.ids(new, "users").ids.tolist()), emb.held(new, "users")
    assert held.evicted - before == 1040 - len(kept) > 0
    assert kept == set(saved.ids[sources["users"][sources["users"] >= 0], 0].tolist())
    assert set(range(340)) <= kept  # each group has fewer of them than rows


@pytest.mark.parametrize("backend", ["xla", "native"])
def test_a_table_that_never_evicts_has_all_its_rows_for_any_ids(backend):
    emb = sp.Embedder(embedder(rows=1040, evict="none", unknown="zeros").features, backend=backend)
    batch = emb.pack({"user": np.arange(1040), "friends": [[]] * 1040})
    state, batch = jax.jit(emb.assign)(emb.init(jax.random.key(0)), batch)
    held = emb.held(state, "users")
    assert (held.used, held.evicted) == (1040, 0)
    assert np.asarray(emb.lookup(state, batch)["user"]).any(axis=1).all()


def test_bad_specs_are_refused():
    with pytest.raises(ValueError, match="vocabulary_size must be at least 2, as unknown ids share one row"):
        embedder(rows=1)
    embedder(rows=1, unknown="zeros")
    for bad in ({"admit": 0}, {"admit": 1.5}, {"admit": True}, {"evict": "fifo"}, {"unknown": 0}, {"expire_steps": 0}):
        with pytest.raises((ValueError, TypeError), match="dynamic: "):
            sp.Dynamic(**bad)


def test_a_step_that_may_be_undone_copies_no_table():
    """Rows of evicted ids are read before new ones start in their places: in this order, all of it happens in place."""
    rows = 50_000
    table = sp.TableSpec(
        name="t", vocabulary_size=rows, embedding_dim=16, optimizer=sp.rules.Adagrad(0.1), dynamic=sp.Dynamic(admit=1)
    )
    emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)], backend="native")

    def step(state, batch, when):
        state, batch = emb.assign(state, batch)
        acts = emb.lookup(state, batch)
        state = emb.apply(state, emb.row_grads(batch, acts).only_if(when))
        return emb.undo(state, [batch], ~when)

    state, batch = emb.init(jax.random.key(0)), emb.pack({"f": np.arange(64)})
    compiled = jax.jit(step, donate_argnums=0).lower(state, batch, jnp.array(True)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < rows * 16 * 4 / 4
