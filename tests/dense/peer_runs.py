"""Trajectories of a peer's MARS, quad and skew on given gradients, and how to ask for the same here."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax

from sparrow import dense, schedules

DATA = np.load(Path(__file__).parents[1] / "golden" / "mars_quad_skew.npz")
CASES = json.loads(bytes(DATA["meta"]))


def peer(case, kind=""):
    return {leaf: DATA[f"{case}/{kind}{leaf}"] for leaf in "wb"}


def ours(case, **changes):
    """Our parameters after the updates that are stored of the peer's."""
    described = CASES[case]
    arguments = eformer_to_build(described) | changes
    return trajectory(dense.build(**arguments)[0], described["updates"], described["stored"])


def eformer_to_build(described):
    names = {"b1": "beta1", "epsilon": "eps"}
    hyper = {names.get(key, key): value for key, value in described["config"].items()}
    scheduler = described["scheduler"]
    rate = scheduler["learning_rate"]
    if "scheduler_type" in scheduler:
        end, steps, warmup = (scheduler[key] for key in ("learning_rate_end", "steps", "warmup_steps"))
        rate = schedules.cosine(rate, end, steps, warmup_steps=warmup, warmup_learning_rate=1e-8)
    if described["exact_norm"]:
        hyper["norm"] = "exact"
    return {
        "name": described["optimizer"],
        "learning_rate": rate,
        # The peer's own decay and that of its factory add up.
        "weight_decay": hyper.pop("weight_decay", 0.0) + described.get("weight_decay", 0.0),
        "clip_norm": described.get("clip_grad"),
        "accumulate": described.get("gradient_accumulation_steps", 1),
        **hyper,
    }


def trajectory(tx, updates, stored):
    """Call t uses gradient t modulo 8."""
    params, grads = ({leaf: jnp.asarray(DATA[f"inputs/{kind}_{leaf}"]) for leaf in "wb"} for kind in ("param", "grad"))

    def step(carry, t):
        params, state = carry
        updates, state = tx.update({leaf: grads[leaf][t % 8] for leaf in grads}, state, params)
        params = optax.apply_updates(params, updates)
        return (params, state), params

    @jax.jit
    def run(params):
        return jax.lax.scan(step, (params, tx.init(params)), jnp.arange(updates))[1]

    return {leaf: values[np.array(stored)] for leaf, values in run(params).items()}


def distance(found, expected):
    return max(float(np.abs(found[leaf] - expected[leaf]).max()) for leaf in expected)
