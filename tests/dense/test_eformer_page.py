"""The calls on the migration page, against the optax calls of eFormer's builders at its defaults."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sparrow as sp

PAGE = (Path(__file__).parents[2] / "docs" / "migrate" / "eformer.md").read_text()
CALLS = dict(re.findall(r"^\| `(\w+)` \| `(sp\.dense\.build\(.*\))` \|$", PAGE, re.MULTILINE))
STEPS = 6

# The defaults of eFormer's config classes, handed to the calls that its builders make.
BUILDERS = {
    "adamw": lambda rate: optax.adamw(rate, b1=0.9, b2=0.999, eps=1e-8, eps_root=0.0, weight_decay=0.0),
    "adafactor": lambda rate: optax.adafactor(
        rate,
        min_dim_size_to_factor=128,
        decay_rate=0.8,
        decay_offset=0,
        multiply_by_parameter_scale=True,
        clipping_threshold=1.0,
        momentum=None,
        dtype_momentum=jnp.float32,
        weight_decay_rate=None,
        eps=1e-30,
        factored=True,
    ),
    "lion": lambda rate: optax.lion(rate, b1=0.9, b2=0.99),
    "rmsprop": lambda rate: optax.rmsprop(
        rate, decay=0.9, eps=1e-8, initial_scale=0.0, centered=False, momentum=None, nesterov=False
    ),
    "muon": lambda rate: optax.contrib.muon(
        rate,
        ns_coeffs=(3.4445, -4.775, 2.0315),
        ns_steps=5,
        beta=0.95,
        eps=1e-8,
        weight_decay=0.0,
        nesterov=True,
        adaptive=False,
        adam_b1=0.9,
        adam_b2=0.999,
        adam_eps_root=0.0,
    ),
}

# Options of a builder beside its defaults: what the page's table of names makes of them.
OPTIONS = {
    "rmsprop, momentum": (
        lambda rate: optax.rmsprop(rate, decay=0.9, momentum=0.9, initial_scale=0.5),
        {"momentum": 0.9, "initial_accumulator": 0.5},
    ),
    "rmsprop, nesterov": (
        lambda rate: optax.rmsprop(rate, decay=0.8, momentum=0.9, nesterov=True),
        {"alpha": 0.8, "momentum": 0.9, "nesterov": True},
    ),
    "adamw, bfloat16": (
        lambda rate: optax.adamw(rate, b1=0.8, b2=0.95, mu_dtype=jnp.bfloat16, weight_decay=0.0),
        {"beta1": 0.8, "beta2": 0.95, "mu_dtype": "bfloat16"},
    ),
    "adafactor, momentum": (lambda rate: optax.adafactor(rate, momentum=0.9), {"momentum": 0.9}),
}


def built(name, rate, **options):
    call = CALLS[name.split(",")[0]]
    for option in options:  # given anew in place of the page's
        call = re.sub(rf", {option}=[^,)]+", "", call)
    call = call[:-1] + "".join(f", {key}={value!r}" for key, value in options.items()) + ")"
    return eval(call, {"sp": sp, "rate": rate})[0]


def tree(seed):
    random = np.random.RandomState(seed)
    shapes = {"kernel": (130, 129), "embedding": (7, 5), "bias": (9,)}
    return {name: np.asarray(random.normal(size=shape), np.float32) for name, shape in shapes.items()}


def trajectory(tx):
    step = jax.jit(tx.update)
    params, passed = jax.tree.map(jnp.asarray, tree(0)), []
    state = tx.init(params)
    for t in range(STEPS):
        updates, state = step(tree(1 + t), state, params)
        params = optax.apply_updates(params, updates)
        passed.append(params)
    return passed


def distance(a, b):
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(jnp.abs(x - y).max()), a, b)))


def rate_of(scheduler):
    """Both sides of a row of the page's table: eFormer's schedule and ours."""
    if scheduler == "constant":
        return 5e-5, 5e-5
    theirs = optax.warmup_cosine_decay_schedule(1e-8, 3e-2, 2, STEPS, end_value=1e-3, exponent=1.5)
    ours = sp.schedules.cosine(3e-2, 1e-3, steps=STEPS, warmup_steps=2, exponent=1.5, warmup_learning_rate=1e-8)
    return theirs, ours


@pytest.mark.parametrize("scheduler", ["constant", "cosine"])
@pytest.mark.parametrize("name", [*BUILDERS, *OPTIONS])
def test_the_page_gives_eformers_numbers(name, scheduler):
    make, options = (BUILDERS[name], {}) if name in BUILDERS else OPTIONS[name]
    theirs, ours = rate_of(scheduler)
    assert distance(trajectory(make(theirs)), trajectory(built(name, ours, **options))) <= 2e-6


def test_the_form_of_rmsprop_matters():
    theirs, ours = rate_of("cosine")
    expected = trajectory(optax.rmsprop(theirs, decay=0.9, momentum=0.9))
    assert distance(expected, trajectory(built("rmsprop", ours, momentum=0.9))) <= 2e-6
    assert distance(expected, trajectory(built("rmsprop", ours, momentum=0.9, form="torch"))) > 0.01


def test_linear_warmup_is_eformers():
    theirs = optax.join_schedules([optax.linear_schedule(1e-8, 0.1, 3), optax.linear_schedule(0.1, 0.01, 7)], [3])
    ours = sp.schedules.linear(0.1, 0.01, steps=10, warmup_steps=3, warmup_learning_rate=1e-8)
    np.testing.assert_allclose([ours(t) for t in range(14)], [theirs(t) for t in range(14)], atol=3e-8)


def test_the_records_have_eformers_defaults():
    """MARS, quad and skew: their equations are compared with eFormer's own runs in test_mars and test_whitening."""
    assert set(CALLS) == {*BUILDERS, "mars", "quad", "skew"}
    mars = sp.dense.make("mars")
    assert (mars.beta1, mars.beta2, mars.gamma, mars.eps, mars.max_grad_norm) == (0.95, 0.99, 0.025, 1e-8, 1.0)
    white = {"lr_style": "adam", "beta1": 0.95, "normalize_grads": False, "max_size_dense": 16384, "block_size": 256}
    white |= {"preconditioner_lr": 0.7, "preconditioner_lr_floor": 0.4, "preconditioner_init_scale": 1.0}
    white |= {"betaL": 0.95, "noise_scale": 1e-9, "scanned_layers": None, "pipeline_axis_size": 1}
    for name in ("quad", "skew"):
        assert 'weight_decay=0.1, dtype="bfloat16"' in CALLS[name]
        record = sp.dense.make(name)
        assert {field: getattr(record, field) for field in white} == white
