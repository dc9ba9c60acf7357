"""Dynamic tables through the Embedder: raw ids, rows that start from their id, exact however early they are packed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest

import sparrow as sp
from sparrow.data.hashing import hash_texts
from sparrow.embedding.dynamic.new_rows import initial_rows


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


def trained(emb, state, words, users, friends):
    batch = emb.pack({"user": users, "friends": friends}, vocabularies=words)
    state, batch = emb.admit(state, batch)
    grads = {name: jnp.ones(shape) for name, shape in emb.activation_shapes(batch).items()}
    return emb.update(state, batch, grads)


def row_of(emb, words, key: int) -> int:
    found = words.find({"user": np.array([key]), "friends": np.zeros((1, 0), np.int64)})
    return int(found["user"][0])


def test_a_row_starts_from_its_id_whenever_and_wherever_it_is_made():
    emb = embedder(unknown="zeros")
    for order in ([7, -1, 2**63], [2**63, 7, 3, -1]):
        words, state = emb.vocabularies(), emb.init(jax.random.key(0))
        users = np.array([key % 2**64 for key in order], np.uint64)
        batch = emb.pack({"user": users, "friends": [[]] * len(order)}, vocabularies=words)
        state, batch = emb.admit(state, batch)
        acts = emb.lookup(state, batch)["user"]
        halves = np.array([[x % 2**32, x % 2**64 >> 32] for x in order], np.uint32)
        np.testing.assert_array_equal(acts, initial_rows(emb.tables["users"], state.seed, jnp.array(halves)))
        assert len(np.unique(np.asarray(acts), axis=0)) == len(order)


def test_features_share_a_vocabulary_and_missing_ids_are_masked():
    emb = embedder(unknown="zeros")
    words, state = emb.vocabularies(), emb.init(jax.random.key(0))
    users = np.ma.MaskedArray(np.array([-1, 5, 6]), [False, False, True])
    batch = emb.pack({"user": users, "friends": [[-1, 5], [], [6]]}, vocabularies=words)
    state, batch = emb.admit(state, batch)
    acts = emb.lookup(state, batch)
    np.testing.assert_allclose(acts["friends"][0], acts["user"][0] + acts["user"][1], rtol=1e-6)
    assert not acts["user"][2].any()
    assert acts["friends"][2].any()
    assert words.ids("users").tolist() == [2**64 - 1, 5, 6]
    assert words.held("users").used == 3


def test_an_id_that_comes_back_starts_anew_with_its_slots():
    emb = embedder(rows=2, unknown="zeros")
    words, state = emb.vocabularies(), emb.init(jax.random.key(0))
    first = emb.pack({"user": [1], "friends": [[]]}, vocabularies=words)
    state, first = emb.admit(state, first)
    start = np.asarray(emb.lookup(state, first)["user"][0])
    state = trained(emb, state, words, [1, 1], [[], []])
    state = trained(emb, state, words, [2, 3], [[], []])  # takes both rows
    batch = emb.pack({"user": [1], "friends": [[]]}, vocabularies=words)
    state, batch = emb.admit(state, batch)
    np.testing.assert_array_equal(emb.lookup(state, batch)["user"][0], start)
    assert (np.asarray(emb.slots(state, "users")["accumulator"])[row_of(emb, words, 1)] == 0.5).all()


@pytest.mark.parametrize("unknown", ["row", "zeros"])
def test_unknown_ids_share_a_trained_row_or_read_zeros(unknown):
    emb = embedder(admit=2, unknown=unknown)
    words, state = emb.vocabularies(), emb.init(jax.random.key(0))
    before = np.asarray(emb.table(state, "users")[0])
    batch = emb.pack({"user": [10, 11], "friends": [[], []]}, vocabularies=words)
    assert not batch.new
    acts = emb.lookup(state, batch)["user"]
    np.testing.assert_array_equal(acts, [before] * 2 if unknown == "row" else np.zeros((2, 4)))
    state = emb.update(state, batch, {"user": jnp.ones((2, 4)), "friends": jnp.zeros((2, 4))})
    assert (np.asarray(emb.table(state, "users")[0]) != before).any() == (unknown == "row")


def test_a_batch_beyond_capacity_is_an_error_that_changes_nothing():
    emb = embedder(rows=3)
    words = emb.vocabularies()
    emb.pack({"user": [1], "friends": [[]]}, vocabularies=words)
    before = words.state()
    with pytest.raises(ValueError, match=r"table 'users': one step needs more rows .* than the 2 that there are"):
        emb.pack({"user": [1, 2], "friends": [[3], []]}, vocabularies=words)
    with pytest.raises(TypeError, match="lists of ids"):
        emb.pack({"user": [4, 5], "friends": [[4], 5]}, vocabularies=words)
    with pytest.raises(ValueError, match="1 ids need as many weights"):
        emb.pack({"user": [4], "friends": sp.Ragged([4], [0, 1], [1.0, 2.0])}, vocabularies=words)
    assert all(np.array_equal(before[name], array) for name, array in words.state().items())


@pytest.mark.parametrize("ids", [[1.5], np.array([np.nan]), [{}]])
def test_ids_that_are_none_are_refused(ids):
    emb = embedder()
    with pytest.raises(TypeError, match="feature 'user': ids must be integers"):
        emb.pack({"user": ids, "friends": [[]]}, vocabularies=emb.vocabularies())


def test_strings_are_ids_by_their_hash():
    emb = embedder()
    words = emb.vocabularies()
    texts = ["Ada", "", "a longer name"]
    emb.pack({"user": np.array(texts), "friends": [["Ada"], [], []]}, vocabularies=words)
    assert words.ids("users").tolist() == hash_texts(pa.array(texts)).tolist()
    column = pa.array(["Ada", None, "new"])
    found = words.find({"user": column, "friends": pa.array([["Ada", "new"], None, []])})
    assert found["user"].tolist() == [1, -1, 0]
    assert found["friends"].to_lists() == [[1, 0], [], []]


def test_micro_batches_of_one_step_do_not_take_each_others_rows():
    emb = embedder(rows=2, unknown="zeros")
    words = emb.vocabularies(accumulate=2)
    for users in ([1], [2], [3], [4]):
        emb.pack({"user": users, "friends": [[]]}, vocabularies=words)
    assert words.step == 2
    emb.pack({"user": [5, 6], "friends": [[], []]}, vocabularies=words)
    with pytest.raises(ValueError, match="one step needs more rows"):
        emb.pack({"user": [7], "friends": [[]]}, vocabularies=words)


def test_packing_ahead_gives_the_bits_of_packing_in_time():
    generator = np.random.default_rng(0)
    inputs = []
    for step in range(30):  # old ids fade, new ones come
        users, friends = (generator.zipf(1.3, shape) % 30 + 4 * step for shape in (16, (16, 2)))
        inputs.append({"user": users * 977, "friends": friends * 977})
    emb = embedder(rows=64, admit=2, rule=sp.rules.Adam(0.1))

    def run(ahead: int, saves: dict | None = None):
        words, state, queue = emb.vocabularies(), emb.init(jax.random.key(0)), []
        for number, given in enumerate([*inputs, *[None] * ahead]):
            if given is not None:
                queue.append(emb.pack(given, vocabularies=words))
            if number < ahead:
                continue
            state, batch = emb.admit(state, queue.pop(0))
            acts = emb.lookup(state, batch)
            state = emb.update(state, batch, {name: act + 0.1 for name, act in acts.items()})
            words.forget(number - ahead + 1)
            if saves is not None:
                with words.at(number - ahead + 1):
                    saves[number - ahead] = words.state()
        return state, words

    saved: tuple[dict, dict] = ({}, {})
    (one, words), (other, ahead) = run(0, saved[0]), run(3, saved[1])
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)
    for step, arrays in saved[0].items():
        assert all(np.array_equal(array, saved[1][step][name]) for name, array in arrays.items()), step
    assert words.held("users") == ahead.held("users")
    assert words.held("users").evicted


def test_what_admit_overwrote_can_be_given_back():
    emb = embedder(rows=2, unknown="zeros", rule=sp.rules.Adam(0.1), dtype="bfloat16")
    words, state = emb.vocabularies(), emb.init(jax.random.key(0))
    state = trained(emb, state, words, [1, 2], [[], []])
    before = jax.tree.map(np.asarray, state)
    batch = emb.pack({"user": [3], "friends": [[]]}, vocabularies=words)
    held = emb.overwritten(state, batch)
    kept, _ = emb.admit(jax.tree.map(jnp.copy, state), batch, when=jnp.array(False))
    changed, _ = emb.admit(state, batch)
    assert (np.asarray(emb.table(changed, "users")) != np.asarray(before.tables["users"])).any()
    for new in (kept, emb.give_back(changed, batch, held)):
        jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, new))


def test_resume_with_more_rows_goes_on_and_with_fewer_is_refused():
    emb, words = embedder(rows=4), embedder(rows=4).vocabularies()
    emb.pack({"user": [8, 9], "friends": [[], []]}, vocabularies=words)
    larger = embedder(rows=6).vocabularies()
    assert larger.restore(words.state()) == ["table 'users' grows from 4 to 6 rows"]
    assert larger.ids("users").tolist() == [8, 9]
    with pytest.raises(ValueError, match="saved with 4 rows, and has 3 here; a dynamic table may grow, not shrink"):
        embedder(rows=3).vocabularies().restore(words.state())


def test_ids_are_kept_where_the_rules_change_and_damaged_ones_are_refused():
    emb = embedder(rows=4, admit=3, waiting=4)
    words = emb.vocabularies()
    emb.pack({"user": [8, 8, 8, 9, 9, 7], "friends": [[]] * 6}, vocabularies=words)
    saved = words.state()
    assert saved["users/waiting"].tolist() == [9, 7]
    less = embedder(rows=4, admit=3, waiting=1).vocabularies()
    less.restore(saved)
    assert less.state()["users/waiting"].tolist() == [7]
    for changed in ({"admit": 1}, {"admit": 0.5}, {"evict": "lfu", "admit": 2}):
        other = embedder(rows=4, **changed).vocabularies()
        other.restore(saved)
        assert other.ids("users").tolist() == [8]
        other.assign({"user": np.array([8, 5]), "friends": np.zeros((2, 0), np.int64)})
    with pytest.raises(ValueError, match="saved with unknown 'row', and has 'zeros' here"):
        embedder(rows=4, unknown="zeros").vocabularies().restore(saved)
    for name, array in (("ids", [8, 8]), ("seen", [-5, 1]), ("places", [0, 10**9]), ("numbers", [99] * 14)):
        kind = saved[f"users/{name}"].dtype
        with pytest.raises(ValueError, match="the ids of table 'users' are damaged"):
            emb.vocabularies().restore(saved | {f"users/{name}": np.array(array, kind)})


def test_bad_specs_are_refused():
    with pytest.raises(ValueError, match="vocabulary_size must be at least 2, as unknown ids share one row"):
        embedder(rows=1)
    embedder(rows=1, unknown="zeros")
    for bad in ({"admit": 0}, {"admit": 1.5}, {"admit": True}, {"evict": "fifo"}, {"unknown": 0}, {"expire_steps": 0}):
        with pytest.raises((ValueError, TypeError), match="dynamic: "):
            sp.Dynamic(**bad)
    emb = embedder()
    with pytest.raises(ValueError, match="table 'users' is dynamic: give pack the vocabularies"):
        emb.pack({"user": [1], "friends": [[]]})
    batch = emb.pack({"user": [1], "friends": [[]]}, vocabularies=emb.vocabularies())
    with pytest.raises(ValueError, match=r"call state, batch = emb.admit\(state, batch\) first"):
        emb.lookup(emb.init(jax.random.key(0)), batch)
