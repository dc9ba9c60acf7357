"""``dense.build``: equal to what a person would write by hand, and clear about what it cannot do."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import dense, rules, schedules

PARAMS = {"kernel": jnp.linspace(-1.0, 2.0, 6).reshape(2, 3), "bias": jnp.array([0.5, -0.5, 1.0])}


def run(tx, steps=6, scale=1.0):
    """Parameters after some steps on gradients that change."""

    def step(carry, t):
        params, state = carry
        grads = jax.tree.map(lambda p: scale * jnp.sin(3 * p + t), params)
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    def train(params):
        return jax.lax.scan(step, (params, tx.init(params)), jnp.arange(steps))[0][0]

    return jax.jit(train)(PARAMS)


def distance(a, b):
    return max(float(jnp.abs(x - y).max()) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


RATE = schedules.cosine(0.1, 0.01, 8, warmup_steps=2)
BY_HAND = {
    "adamw_clip_mask": (
        lambda **other: dense.build(
            "adamw", RATE, weight_decay_mask=r"ker.*", clip_norm=0.7, **({"weight_decay": 0.3} | other)
        ),
        lambda: optax.chain(
            optax.clip_by_global_norm(0.7),
            optax.adamw(RATE, weight_decay=0.3, mask={"kernel": True, "bias": False}),
        ),
        {"weight_decay": 0.2},
    ),
    "sgd_clip_then_l2": (
        lambda **other: dense.build("sgd", 0.1, momentum=0.9, clip_norm=0.5, **({"l2": 0.2} | other)),
        lambda: optax.chain(
            optax.clip_by_global_norm(0.5), optax.add_decayed_weights(0.2), optax.sgd(0.1, momentum=0.9)
        ),
        {"l2": 0.0},
    ),
    "lion_clip_value": (
        lambda **other: dense.build("lion", 0.02, weight_decay=0.1, **({"clip_value": 0.3} | other)),
        lambda: optax.chain(optax.clip(0.3), optax.lion(0.02, weight_decay=0.1)),
        {"clip_value": 0.1},
    ),
    "adam_accumulate": (
        lambda **other: dense.build("adam", RATE, beta1=0.8, **({"accumulate": 2} | other)),
        lambda: optax.MultiSteps(optax.adam(RATE, b1=0.8), 2),
        {"accumulate": 3},
    ),
    "rule_for_tables": (
        lambda **other: dense.build(rules.FTRL(**({"l1": 0.1} | other)), 0.1),
        lambda: rules.as_optax(rules.FTRL(learning_rate=0.1, l1=0.1)),
        {"l1": 0.3},
    ),
}


@pytest.mark.parametrize("case", BY_HAND)
def test_equals_the_chain_written_by_hand(case):
    ours, by_hand, other = BY_HAND[case]
    expected = run(by_hand())
    assert distance(run(ours()[0]), expected) < 1e-6
    assert distance(run(ours(**other)[0]), expected) > 1e-4


def test_the_schedule_comes_back_and_counts_optimizer_steps():
    tx, schedule = dense.build("sgd", schedules.manual_steps(1.0, (0,), (0.5,)), accumulate=2)
    assert schedule == schedules.manual_steps(1.0, (0,), (0.5,))
    state, taken = tx.init(jnp.zeros(())), []
    for _ in range(6):
        update, state = tx.update(jnp.ones(()), state)
        taken.append(float(update))
    assert taken == [0, -1.0, 0, -0.5, 0, -0.5]


@pytest.mark.parametrize("rate", [0, 0.0, schedules.cosine(0.0, 0.0, 10), {"name": "constant", "lr": 0}])
def test_a_rate_of_zero_freezes_and_costs_nothing(rate):
    tx, schedule = dense.build("adam", rate, weight_decay=0.1, clip_norm=1.0, accumulate=4)
    state = tx.init(PARAMS)
    assert jax.tree.leaves(state) == []
    updates, state = tx.update(PARAMS, state, PARAMS)
    assert all(not leaf.any() for leaf in jax.tree.leaves(updates))
    assert float(schedule(3)) == 0


def test_a_section_of_a_config_builds():
    section = {
        "name": "adam",
        "learning_rate": {"name": "exponential_decay", "lr": 0.1, "decay_size": 2, "decay_factor": 0.5},
        "beta1": 0.8,
        "amsgrad": True,
        "l2": 0.01,
        "fused": True,
    }
    tx, schedule = dense.build(**section)
    assert schedule == schedules.exponential_decay(0.1, 2, 0.5)
    by_hand, _ = dense.build(dense.Adam(beta1=0.8, amsgrad=True), schedule, l2=0.01)
    assert distance(run(tx), run(by_hand)) == 0


MASKS = {
    "pattern": r"kernel",
    "patterns": [r"kern.*", r"kernel"],
    "tree": {"kernel": True, "bias": False},
    "function": lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params),
}


@pytest.mark.parametrize("form", MASKS)
@pytest.mark.parametrize("kind", ["weight_decay", "l2"])
def test_decay_is_masked(form, kind):
    tx, _ = dense.build("sgd", 0.5, weight_decay_mask=MASKS[form], **{kind: 0.2})
    updates, _ = tx.update(jax.tree.map(jnp.zeros_like, PARAMS), tx.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["kernel"], -0.1 * PARAMS["kernel"], rtol=1e-6)
    np.testing.assert_array_equal(updates["bias"], 0.0)


def test_a_mask_that_matches_nothing_is_an_error():
    tx, _ = dense.build("sgd", 0.5, weight_decay=0.1, weight_decay_mask=[r"kernel", r"kernels"])
    with pytest.raises(ValueError, match="'kernels' fully matches none of the names: bias, kernel"):
        tx.init(PARAMS)


def test_an_optimizer_of_ones_own():
    @dense.register_optimizer("sign_sgd_for_this_test")
    @dataclasses.dataclass(frozen=True)
    class SignSGD(dense.DenseOptimizer):
        scale: float = 1.0

        def direction(self):
            return optax.chain(optax.scale_by_sign(), optax.scale(self.scale))

    tx, _ = dense.build("sign_sgd_for_this_test", 0.1, scale=2.0)
    assert float(tx.update(jnp.float32(-3.0), tx.init(jnp.float32(1.0)))[0]) == pytest.approx(0.2)
    with pytest.raises(ValueError, match="already registered"):
        dense.register_optimizer("sign_sgd_for_this_test")(SignSGD)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "adm"}, "unknown optimizer 'adm': did you mean 'adam'"),
        ({"name": "adam", "bta1": 0.9}, "optimizer 'adam' has no argument 'bta1': did you mean 'beta1'"),
        ({"name": "adam", "wieght_decay": 0.1}, "did you mean 'weight_decay'"),
        ({"name": "adafactor", "weight_decay_rate": 0.1}, "did you mean 'weight_decay'"),
        ({"name": "adam", "momentum": 0.9}, "has no argument 'momentum'"),
        ({"name": dense.Adam(), "beta1": 0.9}, r"beta1 cannot be given together with a record; put it into Adam\("),
        ({"name": "adam", "learning_rate": -0.1}, "learning_rate must be a finite number at least 0, got -0.1"),
        ({"name": "adam", "learning_rate": "fast"}, "learning_rate must be a finite number at least 0, got 'fast'"),
        ({"name": "adam", "learning_rate": {"name": "cosine", "lr": 1.0}}, "end: is required"),
        ({"name": "adam", "weight_decay": -1.0}, "weight_decay must be a finite number at least 0"),
        ({"name": "adam", "l2": float("nan")}, "l2 must be a finite number"),
        ({"name": "adam", "clip_norm": 0.0}, "clip_norm must be a finite number above 0, got 0.0"),
        ({"name": "adam", "clip_value": -1.0}, "clip_value must be a finite number above 0"),
        ({"name": "adam", "accumulate": 0}, "accumulate must be an integer of at least 1"),
        ({"name": "adam", "beta2": 1.0}, "Adam.beta2 must be a finite number at least 0 and below 1, got 1.0"),
        ({"name": "adam", "mu_dtype": "float17"}, "Adam.mu_dtype must be a dtype such as 'bfloat16', got 'float17'"),
        ({"name": "adamw", "amsgrad": True, "nesterov": True}, "AdamW has no form with both amsgrad and nesterov"),
        ({"name": "sgd", "nesterov": True}, "need a momentum above 0"),
        ({"name": "sgd", "dampening": 0.5}, "need a momentum above 0"),
        ({"name": "sgd", "momentum": 0.9, "nesterov": True, "dampening": 0.5}, "nesterov needs dampening=0"),
        ({"name": "rmsprop", "form": "tf"}, "form: must be 'torch' or 'optax', got 'tf'"),
        ({"name": "rmsprop", "nesterov": True}, "RMSprop.nesterov needs a momentum"),
        ({"name": "sgd", "weight_decay": 0.1, "weight_decay_mask": "("}, "is not a regular expression"),
    ],
)
def test_errors_say_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        dense.build(**({"learning_rate": 0.1} | arguments))


def test_errors_of_the_caller():
    with pytest.raises(TypeError, match="name must be an optimizer's name, its record or a rule, got 3"):
        dense.build(3, 0.1)
    tx, _ = dense.build("sgd", 0.1, weight_decay=0.1)
    with pytest.raises(ValueError, match="weight decay needs the parameters"):
        tx.update(PARAMS, tx.init(PARAMS))


def test_dtypes_are_kept_by_name():
    record = dense.Adam(mu_dtype=jnp.bfloat16)
    assert record == dense.Adam(mu_dtype="bfloat16")
    assert dense.from_json(dense.to_json(record)) == record
    tx, _ = dense.build(record, 0.1)
    assert {leaf.dtype for leaf in jax.tree.leaves(optax.tree.get(tx.init(PARAMS), "mu"))} == {jnp.dtype("bfloat16")}
    assert dense.to_dict(dense.Adafactor())["momentum_dtype"] == "float32"


def test_a_centered_rmsprop_survives_a_constant_gradient():
    """The variance of a constant gradient rounds below zero, where a plain square root gives NaN."""
    tx, _ = dense.build("rmsprop", 0.01, alpha=0.5, centered=True, eps=1e-3)
    grads = jnp.linspace(0.1, 3.0, 64)

    def step(state, _):
        updates, state = tx.update(grads, state)
        return state, updates

    _, updates = jax.lax.scan(step, tx.init(grads), length=60)
    assert bool(jnp.isfinite(updates).all())
    plain = optax.scale_by_stddev(0.5, 1e-3, eps_in_sqrt=False)
    _, broken = jax.lax.scan(lambda state, _: plain.update(grads, state)[::-1], plain.init(grads), length=60)
    assert not bool(jnp.isfinite(broken).all())  # so the case is one that needs the guard


def test_muon_takes_hidden_matrices_only():
    params = {
        "user_embedding": jnp.ones((4, 3)),
        "Embed_0": {"embedding": jnp.ones((4, 3))},
        "tower": {"kernel": jnp.ones((4, 3)), "bias": jnp.ones(3)},
        "head": {"kernel": jnp.ones((4, 1))},
        "stack": jnp.ones((2, 4, 3)),
    }
    grads = jax.tree.map(lambda p: jnp.sin(1.0 + jnp.arange(p.size, dtype=p.dtype)).reshape(p.shape), params)

    def first_updates(name, **hyper):
        tx, _ = dense.build(name, 0.1, **hyper)
        update = jax.jit(lambda grads: tx.update(grads, tx.init(params), params)[0])
        return update(grads)

    adam = first_updates("adam", nesterov=True)

    def goes_to_adam(**hyper):
        muon = first_updates("muon", ns_steps=1, **hyper)
        same = jax.tree.map(lambda a, b: np.allclose(a, b, atol=1e-6), muon, adam)
        return {name for name, yes in zip(dense.path_names(params), jax.tree.leaves(same), strict=True) if yes}

    everything = set(dense.path_names(params))
    assert goes_to_adam() == everything - {"tower/kernel"}
    assert goes_to_adam(embeddings=r"tower/.*") == everything - {"user_embedding", "Embed_0/embedding"}
    assert goes_to_adam(embeddings=()) == everything - {"user_embedding", "Embed_0/embedding", "tower/kernel"}
    with pytest.raises(ValueError, match=r"'item_.*' fully matches none of the names"):
        first_updates("muon", embeddings=[r"user_.*", r"item_.*"])
    assert goes_to_adam(adam_rate_scale=0.5) == set()
