"""Stages: the same numbers as on one device, for every optimizer; what travels; what is refused."""

import gc
import json
import os
import subprocess
import sys
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import dense
from sparrow.dense.stages import StagedOptimizer
from sparrow.dense.stages.placement import EVERYWHERE, Mixed, OnStage, compute, foreign, place
from sparrow.dense.stages.programs import Programs, Wanted

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run_on_four_devices(*cases):
    """How far each case ends from the run on one device, after 20 steps."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    program = [sys.executable, Path(__file__).with_name("four_stages.py"), *cases]
    done = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


GROUPS = [
    ("control", "sgd", "adagrad", "adadelta", "rmsprop", "lion", "muon", "rule"),
    ("adam", "adamw", "adafactor", "mars", "parts", "apply_if_finite", "moved"),
    ("quad", "skew"),
]


@pytest.mark.parametrize("cases", GROUPS, ids="+".join)
def test_stages_give_the_numbers_of_one_device(cases):
    """With clipping, a decay mask and accumulation; ``moved`` goes to sharded stages on other devices half-way.

    ``control`` shows that the comparison can fail: stages that clip by their own norms end far off.
    """
    for case, found in run_on_four_devices(*cases).items():
        if case == "control":
            assert found["params"] > 0.01
            continue
        assert found["moved"] > 0.01, case
        assert found["params"] < 1e-6, case
        assert found["state"] < 1e-6, case


def test_no_optimizer_is_left_out():
    shipped = {name for name in dense.names() if dense.OPTIMIZERS[name].__module__.startswith("sparrow.")}
    assert shipped <= {case for group in GROUPS for case in group}


PARAMS = {"a": {"w": jnp.arange(6.0).reshape(3, 2)}, "b": {"w": jnp.ones(4), "s": jnp.ones(())}}
GRADS = jax.tree.map(lambda leaf: leaf + 1, PARAMS)


def first_part(path):
    return path.split("/")[0]


def test_each_stage_holds_its_own_share():
    tx, _ = dense.build("adam", 0.1, clip_norm=1.0)
    staged = StagedOptimizer(tx, first_part)
    state = staged.init(PARAMS)
    whole = tx.init(PARAMS)
    moments = {stage: optax.tree.get(share, "mu") for stage, share in state.items()}
    assert moments["a"]["b"] == {"w": None, "s": None}
    assert moments["b"]["a"] == {"w": None}
    assert moments["b"]["b"]["w"].shape == (4,)
    assert all(len(optax.tree.get_all_with_path(share, "count")) > 0 for share in state.values())
    assert jax.tree.structure(staged.merge(state)) == jax.tree.structure(whole)
    again = staged.split(staged.merge(state), PARAMS)
    assert jax.tree.structure(again) == jax.tree.structure(state)


def test_extra_arguments_reach_every_stage():
    tx, _ = dense.build("sgd", 1.0, clip_norm=1.0)
    staged = StagedOptimizer(tx, first_part)
    updates, _ = staged.update(GRADS, staged.init(PARAMS), PARAMS, global_norm=10.0)
    jax.tree.map(lambda update, grad: np.testing.assert_allclose(update, -grad / 10, rtol=1e-6), updates, GRADS)
    with pytest.raises(TypeError, match="the extra argument 'value_fn' is a function"):
        staged.update(GRADS, staged.init(PARAMS), PARAMS, value_fn=lambda: 0)


def test_a_donated_state_is_used_up():
    staged = StagedOptimizer(dense.build("adam", 0.1)[0], first_part, donate=True)
    state = staged.init(PARAMS)
    _, new_state = staged.update(GRADS, state, PARAMS)
    assert optax.tree.get(state["a"], "mu")["a"]["w"].is_deleted()
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((new_state, PARAMS, GRADS)))
    staged.update(GRADS, new_state, PARAMS)


def test_a_step_is_traced_once():
    traces = []

    def update(updates, state, params=None):
        traces.append(1)
        return updates, state

    staged = StagedOptimizer(optax.GradientTransformation(optax.init_empty_state, update), first_part)
    state = staged.init(PARAMS)
    for _ in range(3):
        _, state = staged.update(GRADS, state, PARAMS)
    assert len(traces) == 2  # once for the owners of the state, once for the update


def test_parameters_are_not_kept_alive():
    staged = StagedOptimizer(dense.build("adam", 0.1, clip_norm=1.0)[0], first_part)
    params = jax.tree.map(jnp.copy, PARAMS)
    last = weakref.ref(params["a"]["w"])
    staged.update(GRADS, staged.init(params), params)
    del params
    gc.collect()
    assert last() is None


def test_arrays_that_meet_are_refused():
    def mix(updates, params=None):
        total = jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(updates)])
        return jax.tree.map(lambda leaf: leaf - jnp.median(total), updates)

    with pytest.raises(ValueError, match=r"arrays of 'a/w' \(stage 'a'\) and 'b/w' \(stage 'b'\) together in `concat"):
        StagedOptimizer(optax.stateless(mix), first_part).init(PARAMS)


def test_an_array_wanted_elsewhere_is_refused():
    def borrow(updates, params=None):
        return {"a": updates["a"], "b": {"w": jnp.tile(updates["a"]["w"][0], 2), "s": updates["b"]["s"]}}

    staged = StagedOptimizer(optax.stateless(borrow), first_part)
    with pytest.raises(ValueError, match=r"an array of 'a/w' \(stage 'a'\) is wanted on stage 'b'"):
        staged.update(GRADS, staged.init(PARAMS), PARAMS)


def test_misuse_is_refused():
    staged = StagedOptimizer(dense.build("adam", 0.1)[0], first_part)
    state = staged.init(PARAMS)
    with pytest.raises(TypeError, match=r"outside of jax\.jit"):
        jax.jit(staged.init)(PARAMS)
    with pytest.raises(TypeError, match=r"outside of jax\.jit"):
        jax.jit(staged.update)(GRADS, state, PARAMS)
    with pytest.raises(TypeError, match="the parameter 'a/w' is a ndarray"):
        staged.init({**PARAMS, "a": {"w": np.ones(2)}})
    with pytest.raises(ValueError, match="the two trees must have the same structure"):
        staged.update({"a": GRADS["a"]}, state, PARAMS)
    with pytest.raises(ValueError, match=r"does not fit the stages .*use split\(merge\(state\), params\)"):
        StagedOptimizer(dense.build("adam", 0.1)[0]).update(GRADS, state, PARAMS)


def test_a_stage_without_gradients_waits():
    """Stages updated one after another end where stages updated together do; a waiting stage keeps its very state."""
    staged = StagedOptimizer(dense.build("adam", 0.1, weight_decay=0.1)[0], first_part)
    state = staged.init(PARAMS)
    expected, _ = staged.update(GRADS, state, PARAMS)
    none = jax.tree.map(lambda _: None, GRADS)
    first, after_first = staged.update({**none, "a": GRADS["a"]}, state, PARAMS)
    assert after_first["b"] is state["b"]
    assert jax.tree.leaves(first["b"]) == []
    second, after_both = staged.update({**none, "b": GRADS["b"]}, after_first, PARAMS)
    assert list(after_both) == list(state)
    for found, stage in ((first, "a"), (second, "b")):
        for name, update in expected[stage].items():
            np.testing.assert_array_equal(found[stage][name], update)
    counts = [leaf for leaf in jax.tree.leaves(after_both) if leaf.dtype == jnp.int32]
    assert {int(count) for count in counts} == {1}


def test_what_a_waiting_stage_must_know_is_refused():
    clipped = StagedOptimizer(dense.build("adam", 0.1, clip_norm=1.0)[0], first_part)
    state, none = clipped.init(PARAMS), jax.tree.map(lambda _: None, GRADS)
    with pytest.raises(ValueError, match=r"stage 'b' has no gradients \(None\), but the other stages need"):
        clipped.update({**none, "a": GRADS["a"]}, state, PARAMS)
    clipped.update({**none, "a": GRADS["a"]}, state, PARAMS, global_norm=2.0)
    half = {**GRADS, "b": {**GRADS["b"], "s": None}}
    with pytest.raises(ValueError, match=r"gradient of 'b/s' is None, but 'b/w' of the same stage 'b' has one"):
        clipped.update(half, state, PARAMS)
    with pytest.raises(ValueError, match="None need the parameters"):
        clipped.update({**none, "a": GRADS["a"]}, state)


def placed(function, *places):
    shape = jax.ShapeDtypeStruct((3,), jnp.float32)
    return place(jax.make_jaxpr(function)(*[shape] * len(places)), places)


LEFT, RIGHT = OnStage("left", "x"), OnStage("right", "y")


def test_places_of_values():
    def function(x, y, z):
        norm = jnp.sum(x * x) + jnp.sum(y * y)
        return x * 2, jnp.sum(y), norm, x / norm, z + 1, jnp.zeros(3)

    _, outputs = placed(function, LEFT, RIGHT, EVERYWHERE)
    assert [value.place for value in outputs] == [LEFT, RIGHT, Mixed(None), LEFT, EVERYWHERE, EVERYWHERE]
    assert [value.is_scalar for value in outputs] == [False, True, True, False, False, False]


def test_only_the_other_stages_scalars_are_needed():
    (x, y), (norm,) = placed(lambda x, y: [jnp.sum(x) + jnp.sum(y)], LEFT, RIGHT)
    (needed,) = foreign([norm], "left")
    assert needed.place == RIGHT
    assert needed.is_scalar
    assert compute([norm], "left", {x: jnp.ones(3), needed: jnp.float32(5.0)}) == [8.0]
    assert compute([needed], "right", {y: jnp.full(3, 2.0)}) == [6.0]


@pytest.mark.parametrize("index", [0, 1])
def test_a_choice_between_branches_is_made_on_every_stage(index):
    def function(x, y):
        return jax.lax.cond(jnp.sum(x) + jnp.sum(y) > 6.5, lambda: (x, y), lambda: (-x, -y))

    (x, y), (of_x, of_y) = placed(function, LEFT, RIGHT)
    assert (of_x.place, of_y.place) == (LEFT, RIGHT)
    values = {"left": jnp.ones(3), "right": jnp.full(3, [1.0, 2.0][index])}
    here = jnp.zeros(()).sharding
    programs = Programs(
        {"left": Wanted([of_x], [here]), "right": Wanted([of_y], [here])}, {"left": here, "right": here}
    )
    found = programs({"left": {x: values["left"]}, "right": {y: values["right"]}})
    for stage, (result,) in found.items():
        np.testing.assert_array_equal(result, values[stage] * [-1, 1][index])


def test_scalars_that_depend_on_scalars_travel_in_rounds():
    def function(x, y):
        x, y = (leaf / (jnp.sum(x) + jnp.sum(y)) for leaf in (x, y))
        largest = jnp.maximum(jnp.max(x), jnp.max(y))
        return x - largest, y - largest

    (x, y), (of_x, of_y) = placed(function, LEFT, RIGHT)
    here = jnp.zeros(()).sharding
    programs = Programs(
        {"left": Wanted([of_x], [here]), "right": Wanted([of_y], [here])}, {"left": here, "right": here}
    )
    assert len(programs.receivers) == 4
    given = {"left": {x: jnp.array([1.0, 2.0, 3.0])}, "right": {y: jnp.array([4.0, 5.0, 5.0])}}
    found = programs(given)
    np.testing.assert_allclose(found["left"][0], [-0.2, -0.15, -0.1], rtol=1e-6)
    np.testing.assert_allclose(found["right"][0], [-0.05, 0.0, 0.0], atol=1e-7)
