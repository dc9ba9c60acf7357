"""Parameter groups by patterns over paths."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import dense, schedules
from sparrow.dense import assign, build, build_parts, part, path_names

PARAMS = {
    "embedding": jnp.full((4, 2), 2.0),
    "tower": {"kernel": jnp.full((2, 2), 3.0), "bias": jnp.ones(2)},
    "head": {"kernel": jnp.full((2, 2), 5.0), "bias": jnp.ones(2)},
}
NAMES = ["embedding", "head/bias", "head/kernel", "tower/bias", "tower/kernel"]


def test_names_of_nested_containers():
    class Layer(NamedTuple):
        value: Any
        scale: Any

    assert path_names(PARAMS) == NAMES
    assert path_names({"layers": [Layer(1, 2), Layer(3, None)]}) == [
        "layers/0/value",
        "layers/0/scale",
        "layers/1/value",
    ]
    assert path_names(jnp.ones(3)) == [""]


def test_names_of_flax_states():
    from flax import linen, nnx

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs) -> None:
            self.embedding = nnx.Embed(4, 2, rngs=rngs)
            self.layers = nnx.List([nnx.Linear(2, 3, rngs=rngs)])

    state = nnx.state(Model(nnx.Rngs(0)), nnx.Param)
    names = ["embedding/embedding", "layers/0/bias", "layers/0/kernel"]
    assert path_names(state) == names
    assert path_names(nnx.to_pure_dict(state)) == names
    kernel_init = linen.with_partitioning(linen.initializers.ones, ("rows", "columns"))
    boxed = linen.Dense(3, kernel_init=kernel_init).init(jax.random.key(0), jnp.ones((1, 2)))
    assert path_names(boxed) == ["params/bias", "params/kernel"]


def test_a_flax_model_trains_in_parts():
    from flax import nnx

    model = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    kernel = np.asarray(model.kernel[...])
    tx, _ = build_parts(build("adam", 0.1), {"frozen": part(r"kernel")})
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    grads = nnx.grad(lambda model: jnp.sum(jnp.square(model(jnp.ones((1, 2))) - 1)))(model)
    optimizer.update(model, grads)
    np.testing.assert_array_equal(model.kernel[...], kernel)
    assert bool(jnp.all(model.bias[...] != 0))


def test_each_group_follows_its_own_optimizer_and_schedule():
    cosine = schedules.cosine(0.5, 0.0, 10)
    tx, rates = build_parts(
        build("adam", 0.1),
        {"towers": part(r"tower/.*", "sgd", cosine, momentum=0.9), "frozen": part([r"embedding", r".*embedding"])},
    )
    assert rates == {"main": schedules.constant(0.1), "towers": cosine, "frozen": schedules.constant(0.0)}
    alone = {"main": optax.adam(0.1), "towers": optax.sgd(cosine, momentum=0.9), "frozen": optax.set_to_zero()}
    group_of = {"embedding": "frozen", "tower": "towers", "head": "main"}

    params, state = PARAMS, tx.init(PARAMS)
    expected = dict(PARAMS)
    states = {name: alone[group].init(PARAMS[name]) for name, group in group_of.items()}
    step = jax.jit(tx.update)
    for t in range(2):
        grads = jax.tree.map(lambda p: jnp.sin(p + t), params)  # noqa: B023
        updates, state = step(grads, state, params)
        for name, group in group_of.items():
            alone_updates, states[name] = alone[group].update(grads[name], states[name], expected[name])
            expected[name] = optax.apply_updates(expected[name], alone_updates)
        params = optax.apply_updates(params, updates)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), params, expected)


def test_two_parameters_of_one_name_share_a_group():
    params = {"a/b": jnp.ones(2), "a": {"b": jnp.ones(2), "c": jnp.ones(2)}}
    tx, _ = build_parts(build("sgd", 1.0), {"frozen": part(r"a/b")})
    updates, _ = tx.update(params, tx.init(params), params)
    assert [float(leaf[0]) for leaf in jax.tree.leaves(updates)] == [0.0, -1.0, 0.0]


def test_a_frozen_group_has_no_state():
    tx, _ = build_parts(build("adam", 0.1), {"frozen": part(r".*kernel|embedding")})
    state = tx.init(PARAMS)
    inner = state["parts"].inner_states
    assert jax.tree.leaves(inner["frozen"]) == []
    shapes = {leaf.shape for leaf in jax.tree.leaves(inner["main"])}
    assert shapes == {(), (2,)}  # step counts and the moments of the biases


def test_options_here_see_all_parameters():
    groups = {"towers": part(r"tower/.*", "sgd", 1.0)}
    tx, _ = build_parts(build("sgd", 1.0), groups, clip_norm=1.0, accumulate=2)
    grads = jax.tree.map(lambda p: 4.0 * p, PARAMS)
    zeros, state = tx.update(jax.tree.map(jnp.zeros_like, grads), tx.init(PARAMS), PARAMS)
    assert not any(leaf.any() for leaf in jax.tree.leaves(zeros))
    updates, _ = tx.update(grads, state, PARAMS)
    norm = dense.global_norm(PARAMS)
    jax.tree.map(lambda u, p: np.testing.assert_allclose(u, -p / norm, rtol=1e-6), updates, PARAMS)


def test_clipping_takes_a_norm_from_outside_through_every_wrapper():
    tx, _ = build_parts(
        build("sgd", 1.0, clip_norm=1.0), {"towers": part(r"tower/.*", "sgd", 1.0, clip_norm=1.0)}, accumulate=2
    )
    state = tx.init(PARAMS)
    for _ in range(2):
        updates, state = tx.update(PARAMS, state, PARAMS, global_norm=jnp.float32(10.0))
    jax.tree.map(lambda u, p: np.testing.assert_allclose(u, -p / 10, rtol=1e-6), updates, PARAMS)


def test_state_knows_its_parameters():
    tx, _ = build_parts(
        build("adamw", 0.1, weight_decay=0.1, weight_decay_mask=r"head/kernel"),
        {"towers": part(r"tower/.*", "muon", 0.1), "frozen": part(r"embedding")},
        accumulate=2,
    )
    state = tx.init(PARAMS)
    moved = optax.tree.map_params(tx, lambda leaf: leaf + 1.0, state)
    assert jax.tree.structure(moved) == jax.tree.structure(state)
    moments = optax.tree.get(moved.inner_opt_state["parts"].inner_states["main"], "mu")
    assert all((leaf == 1.0).all() for leaf in jax.tree.leaves(moments))


def test_patterns_over_table_names():
    tables = ["users", "items_hot", "items_cold"]
    assert assign([r"items_.*", [r"users", r"us.*"]], tables) == {"users": 1, "items_hot": 0, "items_cold": 0}
    assert assign([], tables) == dict.fromkeys(tables)


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        ([r"tower"], "pattern 'tower' fully matches none of the names: embedding, head/bias, .*tower/kernel"),
        ([r"tower/.*", r".*/bias"], r"'tower/bias' is matched by 'tower/.*' and '.*/bias'.* Names: embedding, "),
        ([[r"tower/.*", r"nothing"]], "pattern 'nothing' fully matches none"),
        ([r"*"], r"pattern '\*' is not a regular expression: nothing to repeat"),
        ([3], "patterns must be a regular expression or a list of them, got 3"),
        ([[3]], "pattern 3 is not a regular expression"),
    ],
)
def test_patterns_that_cannot_be_meant(patterns, message):
    with pytest.raises(ValueError, match=message):
        assign(patterns, NAMES)
    tx, _ = build_parts(build("sgd", 0.1), {str(i): part(p, "sgd", 0.2) for i, p in enumerate(patterns)})
    with pytest.raises(ValueError, match=message):
        tx.init(PARAMS)


def test_a_long_list_of_names_is_cut():
    with pytest.raises(ValueError, match=r"names: n0, n1, .*, n49 and 150 more$"):
        assign(["missing"], [f"n{i}" for i in range(200)])


def test_main_is_a_reserved_name():
    with pytest.raises(ValueError, match="'main' is the name of the parameters that no part takes"):
        build_parts(build("sgd", 0.1), {"main": part(r".*")})
