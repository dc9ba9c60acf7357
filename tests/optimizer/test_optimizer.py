"""One step for tables and dense parameters: accumulation, loss scaling, skipping, clipping, EMA."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sparrow as sp
from sparrow import dense
from sparrow.embedding.initializers import Normal
from sparrow.optimizer import LossScale

ROWS, DIM, BATCH = 12, 4, 8


HARDEST = sp.rules.Adam(0.05, weight_decay=0.1)


@functools.cache
def embedder(rule):
    items = sp.TableSpec(name="items", vocabulary_size=ROWS, embedding_dim=DIM, optimizer=rule, combiner="mean")
    users = sp.TableSpec(name="users", vocabulary_size=ROWS, embedding_dim=DIM, optimizer=rule)
    return sp.Embedder([sp.FeatureSpec(name="seen", table_spec=items), sp.FeatureSpec(name="user", table_spec=users)])


def loss_fn(params, acts, labels):
    hidden = jnp.tanh(jnp.concatenate([acts["seen"], acts["user"]], axis=1) @ params["w"] + params["b"])
    return jnp.mean((hidden.sum(axis=1) - labels) ** 2)


def make(tx=None, rule=HARDEST, **options):
    emb = embedder(rule)
    optimizer = sp.Optimizer(emb, tx or dense.build("adamw", 0.01, weight_decay=0.1)[0], **options)
    rng = np.random.default_rng(0)
    params = {"w": jnp.asarray(rng.normal(size=(2 * DIM, 3)), jnp.float32), "b": jnp.zeros(3)}
    return optimizer, optimizer.init(emb.init(jax.random.key(0)), params)


def inputs(seed, size=BATCH):
    rng = np.random.default_rng(seed)
    seen = rng.integers(0, ROWS - 2, (size, 3))
    users = rng.integers(0, ROWS - 2, size)
    return {"seen": seen, "user": users}, jnp.asarray(rng.normal(size=size), jnp.float32)


def pack(optimizer, given):
    return optimizer.embedder.pack(given)


def stepper(optimizer, loss=loss_fn, **options):
    return jax.jit(lambda state, batch, labels: optimizer.step(state, loss, batch, labels, **options))


def assert_close(a, b, rtol=1e-5, atol=1e-6):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol, atol=atol), a, b)


def as_bytes(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("rule", [HARDEST, sp.rules.Adagrad(0.1, max_gradient=0.01)])
def test_accumulation_equals_the_concatenated_batch(count, rule):
    optimizer, start = make(rule=rule, clip_global_norm=0.5)
    one, many = start, start
    step = stepper(optimizer)
    for seed in range(3):
        given, labels = inputs(seed)
        one, info = step(one, pack(optimizer, given), labels)
        parts = [{name: ids[i::count] for name, ids in given.items()} for i in range(count)]
        micro = [pack(optimizer, part) for part in parts]
        many, accumulated = step(many, micro, [labels[i::count] for i in range(count)])
        np.testing.assert_allclose(accumulated.loss, info.loss, rtol=1e-5)
        np.testing.assert_allclose(accumulated.grad_norm, info.grad_norm, rtol=1e-4)
    assert int(many.step) == 3
    assert_close(many.embedding, one.embedding)
    assert_close((many.params, many.dense), (one.params, one.dense))


def test_a_loss_for_each_example_is_refused():
    table = sp.TableSpec(name="t", vocabulary_size=5, embedding_dim=2, optimizer=sp.rules.SGD(0.1))
    emb = sp.Embedder([sp.FeatureSpec(name="a", table_spec=table)])
    optimizer = sp.Optimizer(emb, optax.sgd(0.1))
    state = optimizer.init(emb.init(jax.random.key(0)), {})
    with pytest.raises(ValueError, match=r"loss_fn must return one number, got the shape \(3,\); take its mean"):
        optimizer.step(state, lambda params, acts: acts["a"].sum(1), emb.pack({"a": [1, 2, 3]}))


def test_gradients_add_by_hand():
    optimizer, state = make()
    (first, labels), (second, more) = inputs(1), inputs(2)
    a, _ = optimizer.gradients(state, loss_fn, pack(optimizer, first), labels, weight=0.5)
    b, _ = optimizer.gradients(state, loss_fn, pack(optimizer, second), more, weight=0.5)
    by_hand, _ = optimizer.apply(state, a + b)
    at_once, _ = stepper(optimizer)(state, [pack(optimizer, first), pack(optimizer, second)], [labels, more])
    assert_close(by_hand, at_once)


def test_loss_scale_changes_nothing_but_the_scale():
    plain, start = make(rule=sp.rules.Adagrad(0.1, max_gradient=0.01), clip_global_norm=0.5)
    scaled, scaled_start = make(rule=sp.rules.Adagrad(0.1, max_gradient=0.01), clip_global_norm=0.5, loss_scale=True)
    one, other = start, scaled_start
    for seed in range(3):
        given, labels = inputs(seed)
        one, _ = stepper(plain)(one, pack(plain, given), labels)
        other, _ = stepper(scaled)(other, pack(scaled, given), labels)
    assert float(other.loss_scale.scale) == 65536
    assert int(other.loss_scale.good_steps) == 3
    assert_close((one.embedding, one.params), (other.embedding, other.params))


@pytest.mark.parametrize("where", ["dense", "tables", "both"])
def test_a_step_that_is_not_finite_changes_nothing(where):
    optimizer, state = make(loss_scale=LossScale(init_scale=1024.0), ema=0.9, clip_global_norm=1.0)
    given, labels = inputs(0)
    batch = pack(optimizer, given)
    state, _ = stepper(optimizer)(state, batch, labels)  # so that moments and EMA are not zero

    def broken(params, acts, labels):
        factor = {"dense": params["b"][0], "tables": acts["user"][0, 0], "both": params["b"][0] * acts["seen"][0, 0]}
        return loss_fn(params, acts, labels) + factor[where] * jnp.inf

    after, info = stepper(optimizer, broken)(state, batch, labels)
    assert not info.applied
    assert as_bytes(after.embedding) == as_bytes(state.embedding)
    assert as_bytes((after.params, after.dense, after.ema)) == as_bytes((state.params, state.dense, state.ema))
    assert int(after.step) == int(state.step) == 1
    assert int(after.skipped) == 1
    assert float(after.loss_scale.scale) == 512.0
    again, info = stepper(optimizer)(after, batch, labels)
    assert info.applied
    assert int(again.step) == 2
    assert as_bytes(again.embedding.tables) != as_bytes(after.embedding.tables)


def test_without_a_loss_scale_skipping_is_a_choice():
    def broken(params, acts, labels):
        return loss_fn(params, acts, labels) * jnp.nan

    given, labels = inputs(0)
    optimizer, state = make(skip_nonfinite=True)
    after, info = stepper(optimizer, broken)(state, pack(optimizer, given), labels)
    assert as_bytes((after.embedding, after.params)) == as_bytes((state.embedding, state.params))
    assert not info.applied
    optimizer, state = make()
    after, _ = stepper(optimizer, broken)(state, pack(optimizer, given), labels)
    assert np.isnan(after.params["b"]).all()


def test_float16_overflows_backs_off_and_trains():
    """A loss large enough to overflow float16 gradients at the initial scale: steps are skipped until they fit."""
    optimizer, state = make(precision="fp16", loss_scale=LossScale(init_scale=2.0**24, growth_interval=1000))
    given, labels = inputs(0)
    step, batch = stepper(optimizer), pack(optimizer, given)
    applied = []
    for _ in range(30):
        state, info = step(state, batch, labels)
        applied.append(bool(info.applied))
    assert not applied[0]
    assert applied[-1]
    assert int(state.skipped) == applied.count(False)
    assert int(state.step) == applied.count(True)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(state.params))


@pytest.mark.parametrize("precision", ["bf16", "fp16", "float32"])
def test_the_model_computes_in_the_precision(precision):
    optimizer, state = make(precision=precision)
    seen = []

    def watching(params, acts, labels):
        seen.extend(leaf.dtype for leaf in jax.tree.leaves((params, acts)))
        return loss_fn(params, acts, labels)

    given, labels = inputs(0)
    state, _ = stepper(optimizer, watching)(state, pack(optimizer, given), labels)
    assert set(map(str, seen)) == {{"bf16": "bfloat16", "fp16": "float16", "float32": "float32"}[precision]}
    exact, exact_state = make()
    exact_state, _ = stepper(exact)(exact_state, pack(exact, given), labels)
    assert_close(state.params, exact_state.params, rtol=0.05, atol=0.02)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((state.params, state.embedding.tables)))


def test_activations_gradients_stay_in_the_models_precision_until_they_are_scaled():
    optimizer, state = make(precision="bf16")
    given, labels = inputs(0)
    batch = pack(optimizer, given)
    grads, _ = optimizer.gradients(state, loss_fn, batch, labels)
    half, _ = optimizer.gradients(state, loss_fn, batch, labels, weight=0.5)
    for rows, halves in zip(grads.rows.stacks.values(), half.rows.stacks.values(), strict=True):
        assert rows.bag_grads.dtype == jnp.bfloat16
        assert halves.bag_grads.dtype == jnp.float32
        np.testing.assert_array_equal(rows.bag_grads.astype(jnp.float32) * 0.5, halves.bag_grads)
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves((grads.dense, half.dense)))


def test_clipping_covers_dense_and_rows_together():
    rule = sp.rules.SGD(1.0)
    given, labels = inputs(0)
    free, start = make(optax.sgd(1.0), rule)
    clipped, _ = make(optax.sgd(1.0), rule, clip_global_norm=0.1)
    batch = pack(free, given)
    moved, info = stepper(free, grad_norm=True)(start, batch, labels)
    less, clipped_info = stepper(clipped)(start, batch, labels)

    def delta(state):
        return jax.tree.map(
            jnp.subtract, (state.params, state.embedding.tables), (start.params, start.embedding.tables)
        )

    np.testing.assert_allclose(info.grad_norm, optax.tree.norm(delta(moved)), rtol=1e-5)
    np.testing.assert_allclose(clipped_info.grad_norm, info.grad_norm, rtol=1e-6)
    np.testing.assert_allclose(optax.tree.norm(delta(less)), 0.1, rtol=1e-5)
    assert_close(jax.tree.map(lambda x: x * 0.1 / info.grad_norm, delta(moved)), delta(less), atol=1e-7)


def test_ema_copies_first_then_averages_and_swaps():
    optimizer, state = make(ema=0.5)
    given, labels = inputs(0)
    step, batch = stepper(optimizer), pack(optimizer, given)
    first, _ = step(state, batch, labels)
    assert_close(first.ema.params, first.params, rtol=0, atol=0)
    second, _ = step(first, batch, labels)
    expected = jax.tree.map(lambda a, b: 0.5 * a + 0.5 * b, first.params, second.params)
    assert_close(second.ema.params, expected, rtol=1e-7)
    swapped = optimizer.swap_ema(second)
    assert_close(swapped.params, second.ema.params, rtol=0, atol=0)
    assert as_bytes(optimizer.swap_ema(swapped)) == as_bytes(second)


def test_aux():
    optimizer, state = make()

    def with_aux(params, acts, labels):
        return loss_fn(params, acts, labels), {"mean": acts["user"].mean()}

    given, labels = inputs(0)
    batch = pack(optimizer, given)
    _, info = stepper(optimizer, with_aux, has_aux=True)(state, batch, labels)
    assert info.aux["mean"].shape == ()
    _, info = stepper(optimizer, with_aux, has_aux=True)(state, [batch, batch], [labels, labels])
    assert len(info.aux) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"clip_global_norm": 0.0}, "clip_global_norm must be a finite number above 0, got 0.0"),
        ({"ema": 1.0}, "ema must be a finite number at least 0 and below 1"),
        ({"precision": "fp8"}, "unknown precision 'fp8'"),
        ({"loss_scale": True, "skip_nonfinite": False}, "skip_nonfinite=False does not go with a loss scale"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_wrong_use():
    with pytest.raises(TypeError, match=r"embedder must be a sparrow\.Embedder"):
        sp.Optimizer(None, optax.sgd(0.1))
    for accumulating in (optax.MultiSteps(optax.sgd(0.1), 2), dense.build("sgd", 0.1, accumulate=2)[0]):
        with pytest.raises(ValueError, match=r"Optimizer\.tx accumulates"):
            make(accumulating)
    optimizer, state = make()
    with pytest.raises(ValueError, match="keeps no average"):
        optimizer.swap_ema(state)
    given, labels = inputs(0)
    batch = pack(optimizer, given)
    with pytest.raises(ValueError, match="2 micro-batches need 2 of every other argument of loss_fn, got 1"):
        optimizer.step(state, loss_fn, [batch, batch], [labels])
    for bad in ({"init_scale": 0.0}, {"growth_factor": 0.5}, {"backoff_factor": 2.0}, {"growth_interval": 0}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            LossScale(**bad)


def canonical(emb, state):
    """Return the state as far as it means anything: the index of a map, and free places that were given out, do not."""
    ids = {name: saved.arrays() for name, saved in emb.saved_ids(state.embedding).items()}
    maps = {name: held._replace(buckets=0, free=0) for name, held in state.embedding.ids.items()}
    return ids, dataclasses.replace(state, embedding=dataclasses.replace(state.embedding, ids=maps))


@pytest.mark.parametrize(
    ("backend", "micro"), [("xla", 1), pytest.param("xla", 2, marks=pytest.mark.slow), ("native", 1), ("native", 2)]
)
def test_a_skipped_step_leaves_ids_counts_and_evicted_rows_as_they_were(backend, micro):
    tables = [
        sp.TableSpec(
            name=name, vocabulary_size=9, embedding_dim=DIM, optimizer=HARDEST, initializer=values,
            dynamic=sp.Dynamic(evict=evict, admit=admit, unknown="zeros"),
        )
        for name, evict, admit, values in [("a", "lru", 1, None), ("b", "lfu", 2, None), ("c", "lru", 1, Normal(1.0))]
    ]  # fmt: skip
    emb = sp.Embedder([sp.FeatureSpec(name=one.name, table_spec=one) for one in tables], backend)
    optimizer = sp.Optimizer(emb, optax.adam(0.1), skip_nonfinite=True)

    def loss(params, acts, labels):
        return jnp.mean((sum(acts.values()) @ params["w"] - labels) ** 2)

    def batches(seed, last=0.0):
        rng = np.random.default_rng(seed)
        given = [{table.name: rng.integers(0, 40, 4).astype(np.int64) << 40 for table in tables} for _ in range(micro)]
        return [emb.pack(one) for one in given], [jnp.zeros(4)] * (micro - 1) + [jnp.full(4, last)]

    step = jax.jit(lambda state, batch, labels: optimizer.step(state, loss, batch, labels), donate_argnums=0)

    def run(seeds):
        params = {"w": jnp.asarray(np.ones(DIM), jnp.float32)}
        state = optimizer.init(emb.init(jax.random.key(0)), params)
        for seed, last in seeds:
            state, info = step(state, *batches(seed, last))
            assert bool(info.applied) == np.isfinite(last)
        return dataclasses.replace(state, skipped=0)

    good = [(seed, 0.0) for seed in range(12)]
    mixed = [one for seed, _ in good for one in ((100 + seed, np.nan), (seed, 0.0), (200 + seed, np.inf))]
    plain, skipping = canonical(emb, run(good)), canonical(emb, run(mixed))
    assert plain[1].embedding.ids  # evicted and counted
    assert all(emb.held(run(good).embedding, table.name).evicted for table in tables)
    jax.tree.map(np.testing.assert_array_equal, plain, skipping)
