"""Checkpoints of a training loop that is not Sparrow's."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sparrow as sp
from sparrow.checkpoint import CheckpointError, StateCheckpoints


def made(rows=6, rule=None, **options):
    table = sp.TableSpec(
        name="t", vocabulary_size=rows, embedding_dim=2, optimizer=rule or sp.rules.Adam(0.1), **options
    )
    emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
    optimizer = sp.Optimizer(emb, optax.adam(0.1))
    return emb, optimizer, optimizer.init(emb.init(jax.random.key(0)), {"w": jnp.ones(2)})


def loss_fn(params, acts, labels):
    return jnp.mean(jnp.square(acts["f"] @ params["w"] - labels))


def steps(emb, optimizer, state, numbers):
    step = jax.jit(lambda state, batch, labels: optimizer.step(state, loss_fn, batch, labels)[0])
    for number in numbers:
        state = step(state, emb.pack({"f": [number % 6, 2, 5]}), jnp.arange(3.0))
    return state


def leaves(state):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]


def logical(emb, state):
    """All but the order in which a map gives out free rows again."""
    ids = jax.tree.leaves({table: saved.arrays() for table, saved in emb.saved_ids(state.embedding).items()})
    rest = dataclasses.replace(state, embedding=dataclasses.replace(state.embedding, ids={}))
    return leaves(rest) + ids


@pytest.mark.parametrize("dynamic", [None, sp.Dynamic()], ids=["static", "dynamic"])
def test_a_resumed_loop_has_the_same_bits(tmp_path, dynamic):
    emb, optimizer, state = made(dynamic=dynamic)
    expected = steps(emb, optimizer, state, range(6))
    with StateCheckpoints(tmp_path, emb, keep=1) as checkpoints:
        half = steps(emb, optimizer, made(dynamic=dynamic)[2], range(3))
        checkpoints.save(3, half, {"position": 3})
    emb, optimizer, fresh = made(dynamic=dynamic)
    with StateCheckpoints(tmp_path, emb) as checkpoints:
        restored, about = checkpoints.restore(fresh)
    assert about == {"position": 3, "step": 3}
    found = steps(emb, optimizer, restored, range(about["position"], 6))
    for ours, theirs in zip(logical(emb, found), logical(emb, expected), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_ids_of_a_dynamic_table_keep_their_rows_in_a_larger_one(tmp_path):
    emb, optimizer, state = made(dynamic=sp.Dynamic())
    state = steps(emb, optimizer, state, range(3))
    with StateCheckpoints(tmp_path, emb) as checkpoints:
        checkpoints.save(3, state)
    larger, _, fresh = made(rows=9, dynamic=sp.Dynamic())
    with StateCheckpoints(tmp_path, larger) as checkpoints:
        restored, _ = checkpoints.restore(fresh)
    batch = {"f": [0, 1, 2, 5]}
    found, expected = (
        larger.lookup(restored.embedding, larger.pack(batch)),
        emb.lookup(state.embedding, emb.pack(batch)),
    )
    np.testing.assert_array_equal(found["f"], expected["f"])
    assert len(larger.ids(restored.embedding, "t").ids) == 4


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path):
    emb, _, state = made()
    lines = []
    with StateCheckpoints(tmp_path, emb, log=lines.append) as checkpoints:
        checkpoints.save(1, state)
        checkpoints.save(2, state)
        checkpoints.wait()
        (tmp_path / "2" / "state.safetensors").write_bytes(b"nothing")
        assert checkpoints.restore(made()[2])[1] == {"step": 1}
    assert "2" in lines[0]
    assert len(lines) == 1


def test_nothing_saved(tmp_path):
    emb, _, state = made()
    with StateCheckpoints(tmp_path / "new", emb) as checkpoints:
        assert checkpoints.restore(state) is None


def test_another_size_is_refused(tmp_path):
    emb, _, state = made()
    with StateCheckpoints(tmp_path, emb) as checkpoints:
        checkpoints.save(1, state)
    emb, _, state = made(rows=7)
    with StateCheckpoints(tmp_path, emb) as checkpoints, pytest.raises(CheckpointError, match=r"\(6, 2\) in the check"):
        checkpoints.restore(state)


def test_a_state_without_tables_is_refused(tmp_path):
    with StateCheckpoints(tmp_path, made()[0]) as checkpoints, pytest.raises(CheckpointError, match="holds 0"):
        checkpoints.save(1, {"w": jnp.ones(2)})


def test_numbers_of_python_come_back_as_they_were(tmp_path):
    emb, _, state = made()
    tree = {"state": state, "n": 7, "rate": 0.1, "done": True, "far": 2**40}
    with StateCheckpoints(tmp_path, emb) as checkpoints:
        checkpoints.save(1, tree)
        checkpoints.wait()
        restored, _ = checkpoints.restore({"state": made()[2], "n": 0, "rate": 0.0, "done": False, "far": 0})
    found = {name: restored[name] for name in ("n", "rate", "done", "far")}
    assert found == {"n": 7, "rate": 0.1, "done": True, "far": 2**40}
    assert [type(value) for value in found.values()] == [int, float, bool, int]


@pytest.mark.parametrize("leaf", ["text", b"bytes", 2**70, object(), np.array(["a"]), 1j])
def test_other_leaves_are_refused_by_name(tmp_path, leaf):
    emb, _, state = made()
    message = r"'extra/0' is .*`about`"
    with StateCheckpoints(tmp_path, emb) as checkpoints, pytest.raises(CheckpointError, match=message):
        checkpoints.save(1, {"state": state, "extra": [leaf]})
