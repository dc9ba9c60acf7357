"""One table of all dense optimizers, one suite of properties that each must have.

A new optimizer costs one row here.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import dense, schedules


@dataclasses.dataclass(frozen=True)
class Row:
    """One optimizer under test: ``dense.build(name, learning_rate, **hyper)``."""

    name: str
    learning_rate: float  # with it, and a linear decay to 0, the target below is reached in 400 steps
    hyper: dict[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{key}={value}" for key, value in self.hyper.items())])


OPTIMIZERS = [
    Row("sgd", 0.1),
    Row("sgd", 0.05, {"momentum": 0.9, "nesterov": True}),
    Row("sgd", 0.05, {"momentum": 0.9, "dampening": 0.5}),
    Row("adagrad", 0.5),
    Row("adam", 0.05),
    Row("adam", 0.05, {"amsgrad": True, "beta2": 0.99}),
    Row("adam", 0.05, {"nesterov": True, "mu_dtype": "bfloat16"}),
    Row("adamw", 0.05),
    Row("adadelta", 3.0, {"eps": 1e-2}),
    Row("rmsprop", 0.03),
    Row("rmsprop", 0.02, {"momentum": 0.5, "centered": True, "eps": 0.1}),
    Row("rmsprop", 0.02, {"momentum": 0.5, "nesterov": True, "form": "optax"}),
    Row("adafactor", 0.1, {"min_dim_size_to_factor": 2, "momentum": 0.5, "multiply_by_parameter_scale": False}),
    Row("lion", 0.03, {"beta2": 0.9}),
    Row("muon", 0.1),
    Row("mars", 0.05),
    Row("mars", 0.05, {"clip": "per_tensor"}),
    Row("quad", 0.3),
    Row("skew", 0.3),
]

STEPS = 400
EVERY_ROW = pytest.mark.parametrize("row", OPTIMIZERS, ids=str)
SHAPES = {"hidden": {"kernel": (4, 3), "bias": (3,)}, "scale": ()}


def is_shape(node):
    return isinstance(node, tuple)


def normal(seed, dtype=jnp.float32):
    """A tree of normal numbers in the shapes of a small model."""
    keys = iter(jax.random.split(jax.random.key(seed), 3))
    return jax.tree.map(lambda shape: jax.random.normal(next(keys), shape, dtype), SHAPES, is_leaf=is_shape)


def build(row, **options):
    return dense.build(row.name, row.learning_rate, **row.hyper, **options)[0]


@functools.cache
def compiled(index, **options):
    """The transformation of a row, and its compiled step; each trace leaves a mark in the list."""
    tx, traces = build(OPTIMIZERS[index], **options), []

    @jax.jit
    def step(params, state, grads):
        traces.append(1)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return tx, step, traces


def of(row, **options):
    return compiled(OPTIMIZERS.index(row), **options)


def assert_close(found, expected, **tolerance):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **tolerance), found, expected)


def specs(tree):
    """Shapes, dtypes and weak types: what must not change if a step is to be compiled once."""
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)), tree)


def test_every_optimizer_is_in_the_table():
    shipped = {name for name in dense.names() if dense.OPTIMIZERS[name].__module__.startswith("sparrow.")}
    assert {row.name for row in OPTIMIZERS} == shipped


@EVERY_ROW
def test_converges(row):
    tx, schedule = dense.build(row.name, schedules.linear(row.learning_rate, 0.0, STEPS), **row.hyper)
    target, start = normal(0), normal(1)
    curvature = jax.tree.map(lambda leaf: 0.5 + jnp.square(leaf), normal(2))

    def loss(params):
        return 0.5 * sum(
            jnp.sum(c * jnp.square(p - t))
            for p, t, c in zip(*map(jax.tree.leaves, (params, target, curvature)), strict=True)
        )

    def step(carry, _):
        params, state = carry
        updates, state = tx.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    @jax.jit
    def train(params):
        return jax.lax.scan(step, (params, tx.init(params)), length=STEPS)[0][0]

    assert schedule(STEPS) == 0
    assert_close(train(start), target, rtol=0, atol=0.03)


@EVERY_ROW
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
def test_dtypes_are_stable(row, dtype):
    """Updates have the gradients' dtype; the state keeps shapes, dtypes and weak types."""
    tx = build(row, weight_decay=0.1, l2=0.1, clip_norm=1.0)
    params = jax.eval_shape(lambda: normal(0, dtype))
    state = jax.eval_shape(tx.init, params)
    updates, new_state = jax.eval_shape(tx.update, params, state, params)
    assert specs(updates) == specs(params)
    assert specs(new_state) == specs(state)


@EVERY_ROW
def test_compiles_once(row):
    tx, step, traces = of(row)
    params, state = normal(0), tx.init(normal(0))
    for seed in range(3):
        params, state = step(params, state, normal(seed))
    assert len(traces) == 1


@EVERY_ROW
def test_zero_gradients_are_harmless(row):
    tx, step, _ = of(row)
    params, zeros = normal(0), jax.tree.map(jnp.zeros_like, normal(0))
    after, state = step(params, tx.init(params), zeros)
    assert_close(after, params, rtol=0, atol=1e-6)
    for grads in (normal(1), zeros, zeros):
        after, state = step(after, state, grads)
    assert all(jax.tree.leaves(jax.tree.map(lambda leaf: bool(jnp.isfinite(leaf).all()), (after, state))))


@EVERY_ROW
def test_state_knows_its_parameters(row):
    """``optax.tree.map_params`` finds the trees in the state that are shaped like the parameters."""
    tx = build(row, weight_decay=0.1, weight_decay_mask=r".*kernel", clip_norm=1.0, accumulate=2)
    state = tx.init(normal(0))
    marked = optax.tree.map_params(tx, lambda leaf: "param", state, transform_non_params=lambda leaf: "other")
    assert jax.tree.structure(marked) == jax.tree.structure(state)
    kinds = jax.tree.leaves(marked)
    assert kinds.count("param") >= len(jax.tree.leaves(SHAPES, is_leaf=is_shape))  # the accumulated gradients at least
    assert "other" in kinds  # the step counts


@EVERY_ROW
def test_extra_arguments_are_ignored(row):
    tx = build(row)
    params = jax.eval_shape(normal, 0)
    state = jax.eval_shape(tx.init, params)
    update = functools.partial(tx.update, nobody_expects_this=1.0)
    assert specs(jax.eval_shape(update, params, state, params)[0]) == specs(params)


@EVERY_ROW
def test_accumulation_equals_the_mean(row):
    tx, step, _ = of(row)
    accumulating, micro_step, _ = of(row, accumulate=3)
    params = micro_params = normal(0)
    state, micro_state = tx.init(params), accumulating.init(params)
    for big_step in range(2):
        grads = [normal(10 + 3 * big_step + i) for i in range(3)]
        before = micro_params
        for i, grad in enumerate(grads):
            micro_params, micro_state = micro_step(micro_params, micro_state, grad)
            if i < 2:
                assert_close(micro_params, before, rtol=0, atol=0)
        mean = jax.tree.map(lambda *leaves: sum(leaves) / 3, *grads)
        params, state = step(params, state, mean)
    # Newton-Schulz iterations and signs of small sums magnify the rounding of the mean.
    assert_close(micro_params, params, rtol=0, atol=3e-5)


@EVERY_ROW
def test_init_needs_shapes_only(row):
    tx = build(row, weight_decay=0.1, clip_norm=1.0)
    assert specs(jax.eval_shape(tx.init, jax.eval_shape(normal, 0))) == specs(jax.eval_shape(tx.init, normal(0)))


@EVERY_ROW
def test_records_come_back_exactly(row):
    record = dense.make(row.name, **row.hyper)
    assert dense.from_json(dense.to_json(record)) == record
    assert dense.from_yaml(dense.to_yaml(record)) == record
    assert dense.to_dict(dense.from_dict(dense.to_dict(record))) == dense.to_dict(record)
    assert hash(dense.from_json(dense.to_json(record))) == hash(record)


@EVERY_ROW
def test_hyperparameters_can_be_injected(row):
    """``optax.inject_hyperparams`` turns numbers into state: the same updates from traced numbers."""
    number = next(
        (
            name
            for name, value in dense.to_dict(dense.make(row.name, **row.hyper)).items()
            if type(value) is float and value
        ),
        None,
    )
    value = None if number is None else getattr(dense.make(row.name, **row.hyper), number)

    def factory(learning_rate, hyper):
        rest = {name: given for name, given in row.hyper.items() if name != number}
        injected = {} if number is None else {number: hyper}
        return dense.build(row.name, learning_rate, **rest, **injected)[0]

    injected = optax.inject_hyperparams(factory)(learning_rate=row.learning_rate, hyper=value)
    tx, step, _ = of(row)
    params, grads = normal(0), normal(1)
    expected, _ = step(params, tx.init(params), grads)

    @jax.jit
    def injected_step(params, grads):
        updates, state = injected.update(grads, injected.init(params), params)
        return optax.apply_updates(params, updates), state

    found, state = injected_step(params, grads)
    assert float(state.hyperparams["learning_rate"]) == pytest.approx(row.learning_rate)
    assert_close(found, expected, rtol=0, atol=1e-5)
