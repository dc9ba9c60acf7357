"""Trajectories of the peers' real optimizers, step by step, on given gradients."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparrow import dense, schedules

DATA = np.load(Path(__file__).parents[1] / "golden" / "dense.npz")
CASES = json.loads(bytes(DATA["meta"]))
TOLERANCE = 1e-5  # absolute, on parameters of order 1


def trajectory(tx, peer, updates, *, compiled=False):
    """Parameters after each update; call t uses gradient t modulo 8.

    Most optimizers run operation by operation, which costs less here than to compile each of them once.
    """

    def step(params, state, grads):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    if compiled:
        step = jax.jit(step)
    params = {leaf: jnp.asarray(DATA[f"{peer}/inputs/param_{leaf}"]) for leaf in "wb"}
    grads = {leaf: DATA[f"{peer}/inputs/grad_{leaf}"] for leaf in "wb"}
    state, passed = tx.init(params), []
    for t in range(updates):
        params, state = step(params, state, {leaf: jnp.asarray(grads[leaf][t % 8]) for leaf in grads})
        passed.append(params)
    return {leaf: np.stack([params[leaf] for params in passed]) for leaf in grads}


def torch_to_build(optimizer, kwargs, lrs=None):
    """The arguments of ``dense.build`` that say what a ``torch.optim`` class and its arguments say."""
    arguments = dict(kwargs)
    arguments.pop("lr_decay", None)
    if "betas" in arguments:
        arguments["beta1"], arguments["beta2"] = arguments.pop("betas")
    if "initial_accumulator_value" in arguments:
        arguments["initial_accumulator"] = arguments.pop("initial_accumulator_value")
    if optimizer != "AdamW":  # everywhere else PyTorch's weight_decay is an L2 penalty
        arguments["l2"] = arguments.pop("weight_decay", 0.0)
    rate = arguments.pop("lr")
    arguments["learning_rate"] = rate if lrs is None else (lambda step: jnp.asarray(lrs)[step])
    return {"name": optimizer.lower(), **arguments}


@pytest.mark.parametrize("case", CASES["torch"])
def test_trajectories_equal_torch(case):
    tx, _ = dense.build(**torch_to_build(**CASES["torch"][case]))
    found = trajectory(tx, "torch", updates=8)
    for leaf in found:
        np.testing.assert_allclose(found[leaf], DATA[f"torch/{case}/{leaf}"], rtol=0, atol=TOLERANCE)


# What the peer does beside what it is asked to, and how to ask for it here.
EFORMER_DEFECTS = {
    "lion_as_run": {"weight_decay": 1e-3},  # its Lion always decays by 1e-3 more than asked
    "lion_as_run_wd_clip": {"weight_decay": 0.1 + 1e-3},
    "lion_as_run_accum2_cosine": {"weight_decay": 1e-3},
    "muon_adam_wd_as_run": {"weight_decay": 0.0},  # its adam_weight_decay has no effect
}


def eformer_to_build(case, optimizer, config, scheduler, weight_decay=0.0, weight_decay_mask=None, clip_grad=None,
                     gradient_accumulation_steps=1):  # fmt: skip
    names = {"b1": "beta1", "b2": "beta2", "adam_b1": "adam_beta1", "adam_b2": "adam_beta2", "decay": "alpha",
             "initial_scale": "initial_accumulator"}  # fmt: skip
    hyper = {names.get(key, key): value for key, value in config.items()}
    if optimizer == "rmsprop":
        hyper["form"] = "optax"
    mask = weight_decay_mask
    if optimizer == "adafactor" and "weight_decay_rate" in hyper:
        # optax does not multiply it by the learning rate, which is constant in this case.
        weight_decay = hyper.pop("weight_decay_rate") / scheduler["learning_rate"]
    if optimizer == "muon":
        # The peer's two decays of Muon: one for the matrices, one for the rest.
        if "weight_decay" in hyper:
            weight_decay, mask = hyper.pop("weight_decay"), r"w"
        if "adam_weight_decay" in hyper:
            weight_decay, mask = hyper.pop("adam_weight_decay"), r"b"
    rate = scheduler["learning_rate"]
    if "scheduler_type" in scheduler:
        make = {"linear": schedules.linear, "cosine": schedules.cosine}[scheduler["scheduler_type"]]
        rate = make(
            rate,
            scheduler["learning_rate_end"],
            scheduler["steps"],
            warmup_steps=scheduler.get("warmup_steps", 0),
            warmup_learning_rate=1e-8,
        )
    arguments = {
        "name": optimizer,
        "learning_rate": rate,
        "weight_decay": weight_decay,
        "weight_decay_mask": mask,
        "clip_norm": clip_grad,
        "accumulate": gradient_accumulation_steps,
        **hyper,
    }
    return arguments | EFORMER_DEFECTS.get(case, {})


@pytest.mark.parametrize("case", CASES["eformer"])
def test_trajectories_equal_eformer(case):
    arguments = dict(CASES["eformer"][case])
    stored, updates = arguments.pop("stored"), arguments.pop("updates")
    tx, _ = dense.build(**eformer_to_build(case, **arguments))
    compiled = arguments["optimizer"] == "muon" or "gradient_accumulation_steps" in arguments
    found = trajectory(tx, "eformer", updates, compiled=compiled)
    for leaf in found:
        np.testing.assert_allclose(found[leaf][stored], DATA[f"eformer/{case}/{leaf}"], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("case", ["lion_as_run", "muon_adam_wd_fixed"])
def test_the_tolerance_tells_a_decay_apart(case):
    """The comparison above can fail: without its weight decay the trajectory is off by more than the tolerance."""
    arguments = dict(CASES["eformer"][case])
    stored, updates = arguments.pop("stored"), arguments.pop("updates")
    tx, _ = dense.build(**(eformer_to_build(case, **arguments) | {"weight_decay": 0.0}))
    compiled = arguments["optimizer"] == "muon" or "gradient_accumulation_steps" in arguments
    found = trajectory(tx, "eformer", updates, compiled=compiled)
    difference = max(np.abs(found[leaf][stored] - DATA[f"eformer/{case}/{leaf}"]).max() for leaf in found)
    assert difference > 2 * TOLERANCE
