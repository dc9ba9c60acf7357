"""Weights that are learned: gradients of a lookup with respect to the weights of bags, on every backend."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow.kernels import backends

VALUES, OFFSETS = np.array([1, 7, 3, 7, 9]), np.array([0, 2, 2, 5])
OTHER = [[4], [], [2, 2]]
BACKENDS = [name for name, state in backends().items() if name != "feed" and state == "available"]


def embedder(backend, combiner):
    table = sp.TableSpec(name="t", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.SGD(0.1), combiner=combiner)
    features = [sp.FeatureSpec(name=name, table_spec=table, invalid_ids="ignore") for name in ("a", "b")]
    return sp.Embedder(features, backend=backend)


def packed(emb, weights):
    return emb.pack({"a": sp.Ragged(VALUES, OFFSETS, weights=weights), "b": OTHER})


def loss_of(acts):
    return jnp.sum(jnp.sin(acts["a"] * 3) + acts["a"] * acts["b"])


def by_hand(table, weights, combiner):
    """The same loss from the table itself, bag by bag."""
    rows = []
    for begin, end in itertools.pairwise(OFFSETS):
        w, values = weights[begin:end], table[VALUES[begin:end]]
        total = {"sum": 1.0, "mean": jnp.sum(w), "sqrtn": jnp.sqrt(jnp.sum(w * w))}[combiner] if end > begin else 1.0
        rows.append((w[:, None] * values).sum(0) / total)
    others = []
    for ids in OTHER:
        total = {"sum": 1.0, "mean": len(ids) or 1.0, "sqrtn": len(ids) ** 0.5 or 1.0}[combiner]
        others.append(table[jnp.array(ids, int)].sum(0) / total if ids else jnp.zeros(4))
    return loss_of({"a": jnp.stack(rows), "b": jnp.stack(others)})


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_gradient_of_a_weight(backend, combiner):
    emb = embedder(backend, combiner)
    state = emb.init(jax.random.key(0))
    weights = jnp.array([0.5, 2.0, 1.5, -0.25, 1.0])
    batch = packed(emb, np.ones(5, np.float32))

    def loss(weights, for_update=False):
        weighed = emb.with_weights(batch, {"a": weights})
        acts = emb.lookup_for_update(state, weighed)[0] if for_update else emb.lookup(state, weighed)
        return loss_of(acts)

    table = emb.table(state, "t")
    expected, wanted = jax.value_and_grad(by_hand, 1)(table, weights, combiner)
    value, grads = jax.jit(jax.value_and_grad(loss))(weights)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(grads, wanted, rtol=0, atol=2e-6)
    np.testing.assert_allclose(jax.grad(loss)(weights, True), wanted, rtol=0, atol=2e-6)
    np.testing.assert_allclose(jax.jvp(loss, (weights,), (jnp.ones(5),))[1], jnp.sum(wanted), rtol=1e-4)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_weights_given_later_are_weights_given_to_pack(combiner):
    emb = embedder("xla", combiner)
    weights = np.array([0.5, 2.0, 1.5, 0.25, 0.0], np.float32)
    later = emb.with_weights(packed(emb, None), {"a": jnp.asarray(weights)})
    (name,) = later.lookups
    np.testing.assert_allclose(later.lookups[name].gains, packed(emb, weights).lookups[name].gains, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_float_leaves_of_a_batch_are_differentiable(backend):
    """The gradient of a gain is the dot product of its row and its bag's gradient; padding has none."""
    emb = embedder(backend, "sum")
    state = emb.init(jax.random.key(0))
    batch = packed(emb, np.ones(5, np.float32))
    grads = jax.grad(lambda batch: loss_of(emb.lookup(state, batch)), allow_int=True)(batch)
    (name,) = batch.lookups
    lookups, found = batch.lookups[name], grads.lookups[name].gains
    at_bags = jax.grad(lambda acts: loss_of(acts))(emb.lookup(state, batch))
    of_bag = jnp.stack([at_bags["a"], at_bags["b"]], axis=1).reshape(-1, 4)
    table = emb.table(state, "t")
    for entry, (row, bag) in enumerate(zip(lookups.ids, lookups.bags, strict=True)):
        wanted = 0.0 if row >= 10 else float(table[row] @ of_bag[bag])
        assert float(found[entry]) == pytest.approx(wanted, abs=2e-6)


def test_a_weight_per_id_is_learned():
    """Ids whose rows are noise lose their weight, those whose rows are the target keep it."""
    emb = embedder("auto", "sum")
    state = emb.init(jax.random.key(0))
    state = emb.with_table(state, "t", jnp.where(jnp.arange(10)[:, None] == 7, 1.0, -1.0) * jnp.ones((10, 4)))
    batch = packed(emb, np.ones(5, np.float32))

    @jax.jit
    @jax.value_and_grad
    def loss(weight):
        acts = emb.lookup(state, emb.with_weights(batch, {"a": weight[VALUES]}))
        return jnp.mean(jnp.square(acts["a"][jnp.array([0, 2])] - 1.0))

    weight, losses = jnp.full(10, 0.5), []
    for _ in range(50):
        value, grads = loss(weight)
        losses.append(float(value))
        weight = weight - 0.1 * grads
    assert losses[-1] < 1e-3 < losses[0]
    assert float(weight[7]) > 0.5 > float(weight[3])
    assert float(weight[0]) == 0.5  # an id that no bag holds


def test_tables_stay_undifferentiable():
    emb = embedder("auto", "sum")
    state, batch = emb.init(jax.random.key(0)), packed(emb, np.ones(5, np.float32))

    def loss(tables):
        return loss_of(emb.lookup(dataclasses.replace(state, tables=tables), batch))

    with pytest.raises(TypeError, match="gradients with respect to tables cannot be taken"):
        jax.grad(loss)(state.tables)
    with pytest.raises(ValueError, match="unknown feature 'c'"):
        emb.with_weights(batch, {"c": jnp.ones(5)})
