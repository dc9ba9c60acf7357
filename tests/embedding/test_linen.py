"""A model with Linen layers trains under one value_and_grad, to the bits of the Embedder's own path."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import sparrow as sp
from tests.embedding.test_nnx import FEATURES, ITEM, USER, inputs, same

EMB = sp.linen.Embed(FEATURES).embedder


class Head(nn.Module):
    """What scores the activations."""

    @nn.compact
    def __call__(self, acts):
        x = jnp.concatenate([acts["seen"], acts["item"], acts["user"]], axis=1)
        return nn.Dense(1)(nn.relu(nn.Dense(8)(x)))[:, 0]


class Model(nn.Module):
    """Looks up inside."""

    @nn.compact
    def __call__(self, batch):
        return Head(name="head")(sp.linen.Embed(FEATURES, name="embed")(batch))


MODEL = Model()


def take(state, batch, labels, model=MODEL, loss=optax.sigmoid_binary_cross_entropy):
    """What a user writes: the loss, its gradients, and the calls of the layers."""

    def loss_fn(trainable):
        logits, seen = model.apply({**state.variables, **trainable}, batch, mutable=["lookups"])
        return loss(logits, labels).mean(), seen["lookups"]

    return jax.value_and_grad(loss_fn, has_aux=True)(state.trainable(batch))


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, batch, labels):
    (loss, lookups), grads = take(state, batch, labels)
    return state.apply_gradients(grads=grads, lookups=lookups), loss


def start(tx=None, **options):
    variables = MODEL.init(jax.random.key(0), EMB.pack(inputs(0)[0]))
    assert set(variables) == {"params", "embeddings"}  # tables are no parameters, and init leaves nothing else
    return sp.linen.TrainState.create(model=MODEL, variables=variables, tx=tx or optax.adam(0.01), **options)


def test_twenty_steps_equal_the_explicit_path():
    state = start()
    head, tables = jax.tree.map(jnp.copy, (state.variables["params"]["head"], state.variables["embeddings"]))
    tables, tx = tables["embed"]["state"], optax.adam(0.01)
    before, dense = np.asarray(EMB.table(tables, "items")), tx.init(head)

    @jax.jit
    def explicit(head, dense, tables, batch, labels):
        def loss_fn(head, acts):
            return optax.sigmoid_binary_cross_entropy(Head().apply({"params": head}, acts), labels).mean()

        loss, (grads, act_grads) = jax.value_and_grad(loss_fn, argnums=(0, 1))(head, EMB.lookup(tables, batch))
        updates, dense = tx.update(grads, dense, head)
        return optax.apply_updates(head, updates), dense, EMB.update(tables, batch, act_grads), loss

    for seed in range(20):
        ids, labels = inputs(seed)
        state, loss = train_step(state, EMB.pack(ids), labels)
        head, dense, tables, want = explicit(head, dense, tables, EMB.pack(ids), labels)
        assert loss == want
    same(state.variables["embeddings"]["embed"]["state"], tables)
    same(state.variables["params"]["head"], head)
    assert int(state.step) == 20
    assert set(state.variables) == {"params", "embeddings"}
    assert (np.asarray(EMB.table(tables, "items")) != before).any()


def test_several_layers_and_several_calls():
    class TwoTowers(nn.Module):
        def setup(self):
            self.items = sp.linen.Embed((ITEM,))
            self.users = sp.linen.Embed((USER,))
            self.head = nn.Dense(4, use_bias=False)

        def __call__(self, batches):
            users, items, negatives = batches
            user = self.head(self.users(users)["user"])
            rivals = self.items(negatives)["item"].mean(axis=0)
            return (user * (self.items(items)["item"] - rivals)).sum(axis=1)

    emb, user_emb = sp.linen.Embed((ITEM,)).embedder, sp.linen.Embed((USER,)).embedder
    batches = user_emb.pack({"user": [1, 1, 3]}), emb.pack({"item": [5, 6, 7]}), emb.pack({"item": [5, 9, 9, 11]})
    model = TwoTowers()
    state = sp.linen.TrainState.create(model=model, variables=model.init(jax.random.key(0), batches), tx=optax.sgd(0.1))
    tables = state.variables["embeddings"]
    items, users, kernel = (
        tables["items"]["state"],
        tables["users"]["state"],
        state.variables["params"]["head"]["kernel"],
    )

    @jax.jit
    def step(state):
        (_, lookups), grads = take(state, batches, None, model, lambda scores, _: -jax.nn.log_sigmoid(scores))
        return state.apply_gradients(grads=grads, lookups=lookups)

    new = step(state).variables["embeddings"]

    def loss(acts, rivals, user):
        scores = ((user["user"] @ kernel) * (acts["item"] - rivals["item"].mean(axis=0))).sum(axis=1)
        return -jax.nn.log_sigmoid(scores).mean()

    looked = emb.lookup(items, batches[1]), emb.lookup(items, batches[2]), user_emb.lookup(users, batches[0])
    grads, rivals, user = jax.grad(loss, argnums=(0, 1, 2))(*looked)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    want = emb.apply(items, emb.row_grads(batches[2], rivals) + emb.row_grads(batches[1], grads))
    jax.tree.map(close, new["items"]["state"], want)
    jax.tree.map(close, new["users"]["state"], user_emb.update(users, batches[0], user))
    assert int(new["items"]["state"].step) == 1


def test_accumulated_micro_batches_equal_the_concatenated_batch():
    (first, a), (second, b) = inputs(1), inputs(2)
    joined = {name: [*first[name], *second[name]] for name in first}
    state = start(optax.sgd(0.1), clip_global_norm=0.05)

    @jax.jit
    def step(state, *batches):
        total = None
        for batch, labels in batches:
            (_, lookups), grads = take(state, batch, labels)
            grads = state.gradients(grads, lookups)
            total = grads if total is None else total + grads
        total = total.scale(1 / len(batches))
        return state.apply_gradients(grads=total), total.global_norm(), total.all_finite()

    whole, norm, _ = step(state, (EMB.pack(joined), np.concatenate([a, b])))
    parts, _, finite = step(state, (EMB.pack(first), a), (EMB.pack(second), b))
    assert float(norm) > 0.05
    assert finite
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(close, parts.variables, whole.variables)


def test_a_model_that_rematerializes_drops_out_and_keeps_statistics():
    class Deep(nn.Module):
        @nn.compact
        def __call__(self, batch, train):
            scores = nn.remat(Model)(name="inner")(batch)
            scores = nn.BatchNorm(use_running_average=not train)(scores[:, None])
            return nn.Dropout(0.5, deterministic=not train)(scores)[:, 0]

    model, (ids, labels) = Deep(), inputs(0)
    batch = EMB.pack(ids)
    variables = model.init(jax.random.key(0), batch, False)
    state = sp.linen.TrainState.create(model=model, variables=variables, tx=optax.sgd(0.1))
    extra = {"rngs": {"dropout": jax.random.key(1)}}

    def loss_fn(trainable):
        variables = {**state.variables, **trainable}
        logits, seen = model.apply(variables, batch, True, mutable=["lookups", "batch_stats"], **extra)
        return optax.sigmoid_binary_cross_entropy(logits, labels).mean(), seen

    (_, seen), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.trainable(batch, True, **extra))
    new = state.apply_gradients(grads=grads, lookups=seen["lookups"])
    old, new = (s.variables["embeddings"]["inner"]["embed"]["state"] for s in (state, new))
    assert (np.asarray(EMB.table(old, "users")) != np.asarray(EMB.table(new, "users"))).any()


def test_a_layer_that_is_the_whole_model():
    embed, batch = sp.linen.Embed(FEATURES), EMB.pack(inputs(0)[0])
    variables = embed.init(jax.random.key(0), batch)
    state = sp.linen.TrainState.create(model=embed, variables=variables, tx=optax.sgd(0.1))
    (_, lookups), grads = take(state, batch, None, embed, lambda acts, _: acts["item"])
    new = state.apply_gradients(grads=grads, lookups=lookups).variables["embeddings"]["state"]
    want = jax.tree.map(jnp.zeros_like, EMB.lookup(variables["embeddings"]["state"], batch))
    want["item"] += 1 / want["item"].size
    same(new, EMB.update(variables["embeddings"]["state"], batch, want))


def test_the_step_copies_no_table():
    big = sp.TableSpec(name="big", vocabulary_size=400_000, embedding_dim=8, optimizer=sp.rules.RowwiseAdagrad(0.1))
    features = (sp.FeatureSpec(name="f", table_spec=big),)

    class Big(nn.Module):
        @nn.compact
        def __call__(self, batch):
            return nn.Dense(1)(sp.linen.Embed(features)(batch)["f"])[:, 0]

    batch, model = sp.linen.Embed(features).embedder.pack({"f": np.arange(32)}), Big()
    state = sp.linen.TrainState.create(model=model, variables=model.init(jax.random.key(0), batch), tx=optax.adam(0.1))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, batch):
        (loss, lookups), grads = take(state, batch, np.ones(32), model)
        return state.apply_gradients(grads=grads, lookups=lookups), loss

    compiled = step.lower(state, batch).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1_000_000  # the table has 12.8 MB
    assert not re.search(r"f32\[400000,8\][^=]* copy\(", compiled.as_text())


def test_gradients_that_miss_the_tables_are_refused():
    state, (ids, labels) = start(), inputs(0)
    batch, variables = EMB.pack(ids), state.variables

    def loss_fn(params, tables, probes=None, model=MODEL):
        given = {"params": params, "embeddings": tables} | ({"probes": probes} if probes else {})
        return optax.sigmoid_binary_cross_entropy(model.apply(given, batch), labels).mean()

    for wrapped in (loss_fn, jax.jit(loss_fn), jax.checkpoint(loss_fn)):
        with pytest.raises(TypeError, match=r"state\.apply_gradients\(grads=grads, lookups=lookups\)"):
            jax.grad(wrapped)(variables["params"], variables["embeddings"])
        with pytest.raises(TypeError, match="take them at the activations"):
            jax.grad(wrapped, argnums=1, allow_int=True)(variables["params"], variables["embeddings"])
    with pytest.raises(ValueError, match=r"mutable=\['lookups'\]"):
        jax.grad(loss_fn)(variables["params"], variables["embeddings"], state.trainable(batch)["probes"])
    assert np.isfinite(loss_fn(variables["params"], variables["embeddings"]))


def test_gradients_of_other_calls_are_refused():
    state, (ids, labels) = start(), inputs(0)
    (_, lookups), grads = take(state, EMB.pack(ids), labels)
    with pytest.raises(ValueError, match="as they come from one"):
        state.apply_gradients(grads=grads)
    with pytest.raises(ValueError, match="as they come from one"):
        state.apply_gradients(grads={"params": grads["params"]}, lookups=lookups)
    with pytest.raises(ValueError, match="tx accumulates"):
        start(optax.MultiSteps(optax.sgd(0.1), 2))
    with pytest.raises(ValueError, match="clip_global_norm must be above 0"):
        start(clip_global_norm=-1.0)


def test_the_explicit_path_stays():
    embed = sp.linen.Embed(FEATURES)
    batch = EMB.pack(inputs(0)[0])
    variables = {"embeddings": embed.init(jax.random.key(0), batch)["embeddings"]}
    acts = embed.apply(variables, batch)
    update = jax.jit(lambda v: embed.apply(v, batch, acts, method="update", mutable=["embeddings"])[1])
    old = variables["embeddings"]["state"]
    same(update(variables)["embeddings"]["state"], jax.jit(EMB.update)(old, batch, acts))
