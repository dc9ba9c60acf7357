"""A rule as an optax transformation is the same optimizer, with every row touched."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import sparrow as sp
from sparrow.rules import as_optax
from tests.rule_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_equation(case):
    rng = np.random.default_rng(0)
    tx = as_optax(case.rule)
    params = {"matrix": jnp.asarray(rng.normal(size=(4, 6)), jnp.float32), "vector": jnp.ones(6)}
    state = tx.init(params)
    exact = {name: np.atleast_2d(np.asarray(value, np.float64)) for name, value in params.items()}
    slots = {
        name: {
            k: np.full(len(rows) if s.layout == "per_row" else rows.shape, case.rule.slot_init(k))
            for k, s in case.rule.slots.items()
        }
        for name, rows in exact.items()
    }
    update = jax.jit(tx.update)
    for t in range(3):
        grads = {name: jnp.asarray(rng.normal(size=value.shape), jnp.float32) for name, value in params.items()}
        updates, state = update(grads, state, params)
        params = optax.apply_updates(params, updates)
        for name, rows in exact.items():
            g = np.atleast_2d(np.asarray(grads[name], np.float64))
            for r in range(len(rows)):
                rows[r], new = case.equation(rows[r], g[r], {k: v[r] for k, v in slots[name].items()}, t)
                for k, v in new.items():
                    slots[name][k][r] = v
    for name, rows in exact.items():
        np.testing.assert_allclose(np.atleast_2d(params[name]), rows, rtol=5e-6, atol=5e-6)


def test_scalars_dtypes_and_clamping():
    tx = as_optax(sp.rules.SGD(1.0, max_gradient=0.5))
    params = {"scalar": jnp.float32(2.0), "half": jnp.ones((2, 3, 4), jnp.bfloat16)}
    grads = {"scalar": jnp.float32(9.0), "half": jnp.full((2, 3, 4), -9.0, jnp.bfloat16)}
    updates, state = tx.update(grads, tx.init(params), params)
    assert float(updates["scalar"]) == -0.5
    assert updates["half"].dtype == jnp.bfloat16
    assert (updates["half"] == 0.5).all()
    assert int(state.step) == 1


def test_needs_the_parameters():
    tx = as_optax(sp.rules.SGD(0.1))
    with pytest.raises(ValueError, match=r"as_optax\(SGD\) needs the parameters"):
        tx.update(jnp.ones(2), tx.init(jnp.ones(2)))
