"""Rules against numbers of other libraries: FBGEMM run on a GPU, and the SparseCore formulas in float64."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import sparrow as sp
from sparrow import rules

DATA = Path(__file__).parent.parent / "golden"


@functools.cache
def load(name):
    with np.load(DATA / f"{name}.npz") as file:
        return dict(file)


def cases(name):
    return json.loads(bytes(load(name)["cases"]))


FBGEMM_RULES = {
    "sgd": rules.SGD,
    "sgd_clip": rules.SGD,
    "adagrad": rules.Adagrad,
    "rowwise_adagrad": rules.RowwiseAdagrad,
    "rowwise_adagrad_l2": rules.RowwiseAdagrad,
    "rowwise_adagrad_decouple": rules.RowwiseAdagrad,
    "adam": rules.Adam,
    "adam_wd": rules.Adam,
    "partial_rowwise_adam": rules.PartialRowwiseAdam,
    "lamb": rules.LAMB,
    "partial_rowwise_lamb": rules.PartialRowwiseLAMB,
    "lars_sgd": rules.LarsSGD,
}
FBGEMM_CASES = [(case, pooling) for case in cases("fbgemm") for pooling in ("sum", "mean", "weighted_sum")]


@pytest.mark.parametrize(("case", "pooling"), FBGEMM_CASES)
def test_equals_fbgemm(case, pooling):
    data, hyper = load("fbgemm"), dict(cases("fbgemm")[case])
    hyper.pop("gradient_clipping", None)
    if "weight_decay_mode" in hyper:
        hyper["weight_decay_mode"] = hyper["weight_decay_mode"].lower()
    rows, dim = data["w0"].shape
    table = sp.TableSpec(
        name="t",
        vocabulary_size=rows,
        embedding_dim=dim,
        optimizer=FBGEMM_RULES[case](**hyper),
        combiner="mean" if pooling == "mean" else "sum",
    )
    emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
    state = emb.with_table(emb.init(jax.random.key(0)), "t", data["w0"])
    update = jax.jit(emb.update)
    for k in range(4):
        step = {name: data[f"step{k}/{name}"] for name in ("ids", "offsets", "weights", "grad")}
        weights = step["weights"] if pooling == "weighted_sum" else None
        batch = emb.pack({"f": sp.Ragged(step["ids"], step["offsets"], weights)})
        if k == 3:
            out = emb.lookup(state, batch)["f"]
            np.testing.assert_allclose(out, data[f"{case}/{pooling}/step3/out"], rtol=2e-6, atol=2e-6)
        state = update(state, batch, {"f": step["grad"]})
    np.testing.assert_allclose(emb.table(state, "t"), data[f"{case}/{pooling}/step3/table"], rtol=2e-6, atol=2e-6)


SPARSECORE_RULES = {
    "sgd": rules.SGD,
    "adagrad": functools.partial(rules.Adagrad, eps=0.0),
    "adagrad_momentum": rules.AdagradMomentum,
    "adam": rules.Adam,
    "ftrl": rules.FTRL,
    "laprop": rules.LaProp,
    "f2a": rules.F2A,
}
SPARSECORE_NAMES = {
    "initial_accumulator_value": "initial_accumulator",
    "initial_momentum_value": "initial_momentum",
    "initial_linear_value": "initial_linear",
    "initial_slot_value": "initial_slot",
    "l1_regularization_strength": "l1",
    "l2_regularization_strength": "l2",
    "use_nesterov": "nesterov",
    "epsilon": "eps",
    "beta_1": "beta1",
    "beta_2": "beta2",
    "b1": "beta1",
    "b2": "beta2",
    "max_lr_multiplier": "max_multiplier",
}


@pytest.mark.parametrize("case", list(cases("sparsecore")))
def test_equals_sparsecore(case):
    data, spec = load("sparsecore"), cases("sparsecore")[case]
    hyper = {SPARSECORE_NAMES.get(name, name): value for name, value in spec["hyper"].items()}
    hyper.pop("initial_local_step_value", None)  # 0 in every case, as ours always is
    lr = spec["learning_rate"]
    rate = (lambda step: lr / (step + 1)) if spec["lr_rule"] else lr
    low, high = spec["clip"] or (None, None)
    initial = data["inputs/table"]
    table = sp.TableSpec(
        name="t",
        vocabulary_size=initial.shape[0],
        embedding_dim=initial.shape[1],
        optimizer=SPARSECORE_RULES[spec["optimizer"]](learning_rate=rate, **hyper),
        min_value=low,
        max_value=high,
    )
    emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
    state = emb.with_table(emb.init(jax.random.key(0)), "t", initial)
    update = jax.jit(emb.update)
    for ids, grads in zip(data["inputs/ids"], data["inputs/grads"], strict=True):
        state = update(state, emb.pack({"f": ids}), {"f": grads})
    expected = data[f"{case}/table"]
    if case == "adagrad_zero_init_nan":  # the peer divides 0 by 0 where a touched row has no gradient; ours stays
        assert np.isnan(expected).any()
        expected = np.where(np.isnan(expected), initial, expected)
    np.testing.assert_allclose(emb.table(state, "t"), expected, rtol=1e-5, atol=1e-5)
    for slot in spec["slots"]:
        value = np.asarray(emb.slots(state, "t")[slot])
        value = value[:, None] if value.ndim == 1 else value  # one number per row here, repeated over the row there
        np.testing.assert_allclose(*np.broadcast_arrays(value, data[f"{case}/slot_{slot}"]), rtol=1e-5, atol=1e-5)


def test_clipping_is_of_the_activation_gradient():
    """max_gradient clamps each occurrence before the sum, so that a row's total may exceed it."""
    table = sp.TableSpec(name="t", vocabulary_size=4, embedding_dim=2, optimizer=rules.SGD(1.0, max_gradient=0.75))
    emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)])
    state = emb.with_table(emb.init(jax.random.key(0)), "t", np.zeros((4, 2)))
    state = emb.update(state, emb.pack({"f": [1, 1]}), {"f": np.array([[1.0, -2.0], [5.0, 0.5]], np.float32)})
    np.testing.assert_allclose(emb.table(state, "t")[1], [-1.5, 0.25])
