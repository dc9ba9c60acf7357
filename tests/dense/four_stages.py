"""Runs optimizers on stages and on one device, and prints how far apart they end. Run by test_stages.py.

A program of its own, because the number of devices must be set before JAX starts.
"""

import json
import sys

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from sparrow import dense, rules
from sparrow.dense.stages import StagedOptimizer

STEPS = 20
SHAPES = {
    "in": {"embedding": (4, 2)},
    "hidden": {"kernel": (4, 3), "bias": (3,)},
    "norm": {"scale": ()},
    "out": {"bias": (2,)},
}
HYPER = {  # exact norms compile faster; noise that can be seen must be the same on a stage as on the whole
    "quad": {"max_size_dense": 2, "norm": "exact", "noise_scale": 0.01},
    "skew": {"max_size_dense": 2, "norm": "exact", "noise_scale": 0.0},
}


def tree(seed):
    random = np.random.RandomState(seed)
    return {
        stage: {name: np.asarray(random.normal(size=shape), np.float32) for name, shape in shapes.items()}
        for stage, shapes in SHAPES.items()
    }


PARAMS = tree(0)
GRADS = [tree(1 + step) for step in range(STEPS)]


def one_each():
    """A device for every stage; called, not kept: whoever imports this file may have fewer."""
    return dict(zip(SHAPES, jax.devices(), strict=True))


def put(values, where):
    return {stage: jax.device_put(value, where[stage]) for stage, value in values.items()}


def on_one_device(tx, grads, params=PARAMS):
    def step(carry, grads):
        params, state = carry
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *grads)
    return jax.jit(lambda params: jax.lax.scan(step, (params, tx.init(params)), stacked)[0])(params)


def on_stages(tx, grads, moved_to=None):
    """Parameters and whole state after all steps; half-way the stages may move to other devices."""
    where = one_each()
    staged = StagedOptimizer(tx)
    params = put(PARAMS, where)
    state = staged.init(params)
    for step, grad in enumerate(grads):
        if moved_to is not None and step == len(grads) // 2:
            where = moved_to
            params = put(params, where)
            state = staged.split(staged.merge(state), params)
        updates, state = staged.update(put(grad, where), state, params)
        params = optax.apply_updates(params, updates)
    check_devices(params, state, where)
    return params, staged.merge(state)


def check_devices(params, state, where):
    """Parameters stay as they were put, and each stage's share of the state lies on its devices."""
    for leaf, as_put in zip(jax.tree.leaves(params), jax.tree.leaves(put(PARAMS, where)), strict=True):
        if not leaf.sharding.is_equivalent_to(as_put.sharding, leaf.ndim):
            raise AssertionError(f"a parameter has gone from {as_put.sharding} to {leaf.sharding}")
    for stage, share in state.items():
        lies_on = {tuple(sorted(d.id for d in leaf.sharding.device_set)) for leaf in jax.tree.leaves(share)}
        if lies_on != {stage}:
            raise AssertionError(f"the state of stage {stage} lies on {lies_on}")


def distance(found, expected):
    """The largest difference of two trees of the same structure, relative where numbers are above 1."""

    def largest(a, b):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        return np.max(np.abs(a - b) / np.maximum(np.abs(b), 1), initial=0.0)

    return float(np.max(jax.tree.leaves(jax.tree.map(largest, found, expected))))


def compare(tx, grads=GRADS, **stages):
    params, state = on_one_device(tx, grads)
    staged_params, staged_state = on_stages(tx, grads, **stages)
    return {
        "params": distance(staged_params, params),
        "state": distance(staged_state, state),
        "moved": distance(params, PARAMS),
    }


def build(name, **options):
    return dense.build(
        name, 0.05, clip_norm=1.0, weight_decay=0.1, weight_decay_mask=r".*kernel", **options, **HYPER.get(name, {})
    )[0]


def each_on_its_own(tx):
    """The control: the same transformation run on each stage as if it were alone, so that it clips by its own norm."""
    alone = {}
    for stage in SHAPES:
        alone |= on_one_device(tx, [{stage: grad[stage]} for grad in GRADS], {stage: PARAMS[stage]})[0]
    return {"params": distance(alone, on_one_device(tx, GRADS)[0])}


def with_a_nan():
    spoilt = [jax.tree.map(np.copy, grad) for grad in GRADS]
    spoilt[7]["out"]["bias"][1] = np.nan
    return spoilt


def two_by_two():
    """Two stages of two devices each; what can be cut in two is."""
    where = {}
    for stage, shapes in SHAPES.items():
        pair = jax.devices()[:2] if stage in ("in", "hidden") else jax.devices()[2:]
        mesh = Mesh(np.array(pair), ("half",))
        where[stage] = {
            name: NamedSharding(mesh, PartitionSpec("half") if shape and shape[0] % 2 == 0 else PartitionSpec())
            for name, shape in shapes.items()
        }
    return where


def main():
    print(json.dumps({case: run(case) for case in sys.argv[1:]}))


def run(case):
    if case in dense.names():
        return compare(build(case, accumulate=2))
    if case == "rule":
        return compare(dense.build(rules.FTRL(l1=0.01), 0.05, clip_norm=1.0, accumulate=2)[0])
    if case == "parts":
        groups = {"top": dense.part(r"out/.*", "sgd", 0.1, momentum=0.9), "frozen": dense.part(r"in/.*")}
        return compare(dense.build_parts(dense.build("adam", 0.05), groups, clip_norm=1.0, accumulate=2)[0])
    if case == "apply_if_finite":
        guarded = optax.apply_if_finite(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.05)), 3)
        return compare(guarded, with_a_nan())
    if case == "moved":
        return compare(build("adamw", accumulate=2), moved_to=two_by_two())
    if case == "control":
        return each_on_its_own(dense.build("sgd", 0.05, clip_norm=1.0)[0])
    raise ValueError(f"unknown case {case}")


if __name__ == "__main__":
    main()
