"""A model with NNX layers trains under one value_and_grad, to the bits of the Embedder's own path."""

from __future__ import annotations

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import sparrow as sp

ITEMS = sp.TableSpec(
    name="items", vocabulary_size=50, embedding_dim=4, optimizer=sp.rules.Adagrad(0.1), combiner="mean"
)
USERS = sp.TableSpec(name="users", vocabulary_size=20, embedding_dim=8, optimizer=sp.rules.Adam(0.05))
SEEN, ITEM = (sp.FeatureSpec(name=name, table_spec=ITEMS) for name in ("seen", "item"))
USER = sp.FeatureSpec(name="user", table_spec=USERS)
FEATURES = (SEEN, ITEM, USER)
same = functools.partial(jax.tree.map, np.testing.assert_array_equal)


def inputs(seed, examples=6):
    """Ids of all features, with empty bags and repeated rows, and labels."""
    rng = np.random.default_rng(seed)
    lengths = rng.permutation([0, 2, 1, 1, 3, 1] + [0] * (examples - 6))  # 8 ids: one program for all batches
    seen = [rng.integers(0, 50, length).tolist() for length in lengths]
    ids = {"seen": seen, "item": rng.integers(0, 50, examples), "user": rng.integers(0, 20, examples)}
    return ids, rng.integers(0, 2, examples).astype(np.float32)


class Head(nnx.Module):
    """What scores the activations."""

    def __init__(self, rngs):
        self.hidden = nnx.Linear(16, 8, rngs=rngs)
        self.out = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, acts):
        x = jnp.concatenate([acts["seen"], acts["item"], acts["user"]], axis=1)
        return self.out(nnx.relu(self.hidden(x)))[:, 0]


class Model(nnx.Module):
    """Looks up inside."""

    def __init__(self, rngs, backend="auto"):
        self.head = Head(rngs)
        self.embed = sp.nnx.Embed(FEATURES, rngs=rngs, backend=backend)

    def __call__(self, batch):
        return self.head(self.embed(batch))


def loss_fn(model, batch, labels):
    return optax.sigmoid_binary_cross_entropy(model(batch), labels).mean()


@functools.partial(nnx.jit, donate_argnums=(0, 1))
def train_step(model, optimizer, batch, labels):
    loss, grads = sp.nnx.value_and_grad(loss_fn)(model, batch, labels)
    optimizer.update(model, grads)
    return loss


@functools.partial(nnx.jit, donate_argnums=(0, 1))
def prepared_step(model, optimizer, batch, labels):
    model.embed.prepare(batch)
    loss, grads = nnx.value_and_grad(loss_fn)(model, batch, labels)
    optimizer.update(model, grads)
    return loss


def by_hand(steps):
    """The same training with the Embedder, lookup and update outside of the model."""
    rngs = nnx.Rngs(0)
    head = Head(rngs)
    emb = sp.Embedder(FEATURES)
    state = emb.init(rngs.params())
    optimizer = nnx.Optimizer(head, optax.adam(0.01), wrt=nnx.Param)

    @nnx.jit
    def step(head, optimizer, state, batch, labels):
        def loss_fn(head, acts):
            return optax.sigmoid_binary_cross_entropy(head(acts), labels).mean()

        loss, (grads, act_grads) = nnx.value_and_grad(loss_fn, argnums=(0, 1))(head, emb.lookup(state, batch))
        optimizer.update(head, grads)
        return emb.update(state, batch, act_grads), loss

    losses = []
    for seed in range(steps):
        ids, labels = inputs(seed)
        state, loss = step(head, optimizer, state, emb.pack(ids), labels)
        losses.append(loss)
    return nnx.state(head), state, np.stack(losses)


@pytest.mark.parametrize("step", [train_step, prepared_step])
def test_twenty_steps_equal_the_explicit_path(step):
    model = Model(nnx.Rngs(0))
    optimizer = sp.nnx.Optimizer(model, optax.adam(0.01))
    shapes = jax.tree.map(jnp.shape, nnx.state(model))
    before = np.asarray(model.embed.table("items"))
    losses = []
    for seed in range(20):
        ids, labels = inputs(seed)
        losses.append(step(model, optimizer, model.embed.pack(ids), labels))
    head, state, want = by_hand(20)
    np.testing.assert_array_equal(np.stack(losses), want)
    same(model.embed.state.get_value(), state)
    same(nnx.state(model.head), head)
    assert (before != model.embed.table("items")).any()
    assert jax.tree.map(jnp.shape, nnx.state(model)) == shapes  # nothing of the step stays in the model
    assert int(optimizer.step.get_value()) == 20


class TwoTowers(nnx.Module):
    """Several layers, one of them in a list, and one called twice, with batches of different sizes."""

    def __init__(self, rngs):
        self.items = sp.nnx.Embed([ITEM], rngs=rngs)
        self.others = nnx.List([sp.nnx.Embed([USER], rngs=rngs)])
        self.head = nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, users, items, negatives):
        user = self.head(self.others[0](users)["user"])
        rivals = self.items(negatives)["item"].mean(axis=0)
        return (user * (self.items(items)["item"] - rivals)).sum(axis=1)


def tower_loss(model, *batches):
    return -jax.nn.log_sigmoid(model(*batches)).mean()


def test_several_layers_and_several_calls():
    model = TwoTowers(nnx.Rngs(0))
    optimizer = sp.nnx.Optimizer(model, optax.sgd(0.1))
    emb, user_emb = model.items.embedder, model.others[0].embedder
    users, items = user_emb.pack({"user": [1, 1, 3]}), emb.pack({"item": [5, 6, 7]})
    negatives = emb.pack({"item": [5, 9, 9, 11, 12]})
    start = jax.tree.map(jnp.copy, (model.items.state.get_value(), model.others[0].state.get_value()))
    kernel = jnp.copy(model.head.kernel[...])

    @functools.partial(nnx.jit, donate_argnums=(0, 1))
    def step(model, optimizer):
        loss, grads = sp.nnx.value_and_grad(tower_loss)(model, users, items, negatives)
        optimizer.update(model, grads)
        return loss

    step(model, optimizer)

    @jax.jit
    def explicit(items_state, user_state):
        def loss(acts, rivals, user):
            user = user["user"] @ kernel
            return -jax.nn.log_sigmoid((user * (acts["item"] - rivals["item"].mean(axis=0))).sum(axis=1)).mean()

        looked = emb.lookup(items_state, items), emb.lookup(items_state, negatives), user_emb.lookup(user_state, users)
        grads, rivals, user = jax.grad(loss, argnums=(0, 1, 2))(*looked)
        rows = emb.row_grads(negatives, rivals) + emb.row_grads(items, grads)
        return emb.apply(items_state, rows), user_emb.update(user_state, users, user)

    items_state, user_state = explicit(*start)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), model.items.state.get_value(), items_state)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-6), model.others[0].state.get_value(), user_state
    )
    moved = np.flatnonzero((np.asarray(model.items.table("items")) != np.asarray(emb.table(start[0], "items"))).any(1))
    assert moved.tolist() == [5, 6, 7, 9, 11, 12]  # row 5, in both calls, is updated once, by the sum
    assert int(model.items.state.get_value().step) == 1


def test_accumulated_micro_batches_equal_the_concatenated_batch():
    (first, a), (second, b) = inputs(1), inputs(2)
    joined = {name: [*first[name], *second[name]] for name in first}
    whole, parts = Model(nnx.Rngs(0)), Model(nnx.Rngs(0))
    optimizer = sp.nnx.Optimizer(whole, optax.sgd(0.1))
    train_step(whole, optimizer, whole.embed.pack(joined), np.concatenate([a, b]))

    optimizer = sp.nnx.Optimizer(parts, optax.sgd(0.1))
    total = None
    for ids, labels in ((first, a), (second, b)):
        _, grads = sp.nnx.value_and_grad(loss_fn)(parts, parts.embed.pack(ids), labels)
        grads = optimizer.gradients(parts, grads)
        total = grads if total is None else total + grads
    optimizer.update(parts, total.scale(0.5))
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(close, nnx.state(parts), nnx.state(whole))
    assert int(parts.embed.state.get_value().step) == 1


def test_clipping_covers_parameters_and_rows_together():
    ids, labels = inputs(0)
    model = Model(nnx.Rngs(0))
    optimizer = sp.nnx.Optimizer(model, optax.sgd(0.1), clip_global_norm=0.01)
    params = nnx.as_pure(jax.tree.map(jnp.copy, nnx.state(model.head)))
    emb, start = model.embed.embedder, jax.tree.map(jnp.copy, model.embed.state.get_value())
    graph = nnx.graphdef(model.head)
    train_step(model, optimizer, emb.pack(ids), labels)

    explicit = sp.Optimizer(emb, optax.sgd(0.1), clip_global_norm=0.01)

    def loss(params, acts):
        return optax.sigmoid_binary_cross_entropy(nnx.merge(graph, params)(acts), labels).mean()

    want, info = explicit.step(explicit.init(start, params), loss, emb.pack(ids))
    assert float(info.grad_norm) > 0.01
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(close, model.embed.state.get_value(), want.embedding)
    jax.tree.map(close, nnx.as_pure(nnx.state(model.head)), want.params)


def test_a_model_that_rematerializes_drops_out_and_keeps_statistics():
    class Deep(nnx.Module):
        def __init__(self, rngs):
            self.inner = Model(rngs)
            self.norm = nnx.BatchNorm(1, rngs=rngs)
            self.dropout = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, batch):
            scores = nnx.remat(lambda inner, batch: inner(batch))(self.inner, batch)
            return self.dropout(self.norm(scores[:, None]))[:, 0]

    model = Deep(nnx.Rngs(0, dropout=1))
    optimizer = sp.nnx.Optimizer(model, optax.adam(0.01))
    ids, labels = inputs(0)
    before = np.asarray(model.inner.embed.table("users"))
    train_step(model, optimizer, model.inner.embed.pack(ids), labels)
    assert (np.asarray(model.inner.embed.table("users")) != before).any()
    assert int(model.dropout.rngs.count[...]) == 1  # tracing for the calls draws no numbers
    assert float(jnp.abs(model.norm.mean[...]).sum()) > 0


def test_the_step_copies_no_table():
    big = sp.TableSpec(name="big", vocabulary_size=400_000, embedding_dim=8, optimizer=sp.rules.RowwiseAdagrad(0.1))

    class Big(nnx.Module):
        def __init__(self, rngs):
            self.embed = sp.nnx.Embed([sp.FeatureSpec(name="f", table_spec=big)], rngs=rngs)
            self.out = nnx.Linear(8, 1, rngs=rngs)

        def __call__(self, batch):
            return self.out(self.embed(batch)["f"])[:, 0]

    model = Big(nnx.Rngs(0))
    optimizer = sp.nnx.Optimizer(model, optax.adam(0.01))
    batch = model.embed.pack({"f": np.arange(32)})
    lowered = train_step.lower(model, optimizer, batch, np.ones(32, np.float32))
    compiled = lowered.compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 1_000_000  # the table has 12.8 MB
    assert not re.search(r"f32\[400000,8\][^=]* copy\(", compiled.as_text())


def test_gradients_that_miss_the_tables_are_refused():
    model, (ids, labels) = Model(nnx.Rngs(0)), inputs(0)
    batch = model.embed.pack(ids)
    for transform in (nnx.value_and_grad, nnx.grad):
        for wrapped in (lambda f: f, nnx.jit, nnx.remat):
            with pytest.raises(TypeError, match=r"sp\.nnx\.value_and_grad\(loss_fn\)\(model"):
                transform(wrapped(loss_fn))(model, batch, labels)
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    with pytest.raises(TypeError, match=r"sp\.nnx\.value_and_grad\(loss_fn\)\(model"):
        jax.grad(lambda params: loss_fn(nnx.merge(graph, params, rest), batch, labels))(params)
    by_tables = nnx.DiffState(0, sp.nnx.Tables)
    with pytest.raises(TypeError, match="take them at the activations"):
        nnx.grad(loss_fn, argnums=by_tables, allow_int=True)(model, batch, labels)
    with pytest.raises(TypeError, match="real- or complex-valued"):  # JAX's own: the state holds the step
        nnx.grad(loss_fn, argnums=by_tables)(model, batch, labels)
    # What asks for no gradient of the layer goes on.
    nnx.grad(loss_fn, argnums=nnx.DiffState(0, nnx.PathContains("head")))(model, batch, labels)
    nnx.jit(loss_fn)(model, batch, labels)
    assert nnx.state(model, sp.nnx.Batches)["embed"]["batches"].get_value() == ()


def test_frozen_tables_need_no_gradient():
    frozen = sp.TableSpec(name="t", vocabulary_size=9, embedding_dim=4, optimizer=sp.rules.SGD(0.0))
    embed = sp.nnx.Embed([sp.FeatureSpec(name="f", table_spec=frozen)], rngs=nnx.Rngs(0))
    batch = embed.pack({"f": [1, 2]})
    nnx.grad(lambda layer: layer(batch)["f"].sum())(embed)


def test_an_optimizer_of_the_tables_is_refused():
    model = Model(nnx.Rngs(0))
    for wrt in (sp.nnx.Tables, nnx.Variable, ...):
        with pytest.raises(ValueError, match="wrt selects the tables"):
            sp.nnx.Optimizer(model, optax.sgd(0.1), wrt=wrt)
    ids, labels = inputs(0)
    _, grads = sp.nnx.value_and_grad(loss_fn)(model, model.embed.pack(ids), labels)
    for wrt in (sp.nnx.Tables, nnx.Param):  # Flax's own optimizer cannot take them: never a step without the tables
        with pytest.raises(ValueError, match="pytree structure error"):
            nnx.Optimizer(model, optax.sgd(0.1), wrt=wrt).update(model, grads)
    with pytest.raises(ValueError, match="tx accumulates"):
        sp.nnx.Optimizer(model, optax.MultiSteps(optax.sgd(0.1), 2))
    with pytest.raises(ValueError, match="clip_global_norm must be above 0"):
        sp.nnx.Optimizer(model, optax.sgd(0.1), clip_global_norm=0)


def test_gradients_of_other_calls_are_refused():
    model, (ids, labels) = Model(nnx.Rngs(0)), inputs(0)
    optimizer = sp.nnx.Optimizer(model, optax.sgd(0.1))
    batch = model.embed.pack(ids)
    take = functools.partial(sp.nnx.value_and_grad(loss_fn), model, batch, labels)
    _, grads = take()
    with pytest.raises(ValueError, match=r"optimizer\.gradients\(model, grads\)"):  # before jax.tree.map(add, ...)
        take()
    optimizer.update(model, grads)
    with pytest.raises(ValueError, match="called 0 times since the last update, but grads hold the gradients of 1"):
        optimizer.update(model, grads)
    _, grads = take()
    with pytest.raises(ValueError, match="called 1 times since the last update, but grads hold the gradients of 0"):
        optimizer.update(model, nnx.state(grads, nnx.PathContains("head")))
    model.embed.reset()
    model.embed.prepare(batch)
    with pytest.raises(ValueError, match="was prepared for activations of the shapes"):
        model(model.embed.pack(inputs(0, examples=7)[0]))


def test_the_explicit_path_stays():
    """Lookup and update outside of the model, with Flax's own optimizer."""
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer, batch, labels):
        def loss_fn(model, acts):
            return optax.sigmoid_binary_cross_entropy(model.head(acts), labels).mean()

        acts = model.embed(batch)
        grads, act_grads = nnx.grad(loss_fn, argnums=(0, 1))(model, acts)
        optimizer.update(model, grads)
        model.embed.update(batch, act_grads)

    for seed in range(3):
        ids, labels = inputs(seed)
        step(model, optimizer, model.embed.pack(ids), labels)
    head, state, _ = by_hand(3)
    same(model.embed.state.get_value(), state)
    same(nnx.state(model.head), head)
    graph, split = nnx.split(model)
    assert int(nnx.merge(graph, split).embed.state.get_value().step) == 3


def test_a_table_may_be_set():
    embed = sp.nnx.Embed([SEEN], rngs=nnx.Rngs(0))
    embed.set_table("items", np.ones((50, 4), np.float32))
    np.testing.assert_array_equal(embed(embed.pack({"seen": [[3, 4]]}))["seen"], np.ones((1, 4)))
    with pytest.raises(ValueError, match="items"):
        embed.set_table("items", np.ones((50, 5), np.float32))


def test_a_ready_embedder_has_its_own_options():
    with pytest.raises(ValueError, match="backend belong to the Embedder, which is given ready-made"):
        sp.nnx.Embed(sp.Embedder([SEEN]), rngs=nnx.Rngs(0), backend="xla")
