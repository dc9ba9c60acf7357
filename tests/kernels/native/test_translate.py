"""Equations that users write, in C++ and in JAX."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import choose, native, xla
from sparrow.kernels.native.translate import translate
from sparrow.rules import PER_ROW, Rule, Slot
from tests.kernels.native.problems import random_grads, random_state, row_step, scalars


def run(backend, rule, dim):
    rng = np.random.default_rng(3)
    step = row_step(rule, dim)
    state = random_state(step, 20, rng)
    grads = random_grads(rng, dim, 20, count=30)
    return jax.jit(lambda *args: backend.update(step, *args))(*state, grads, scalars(rule))


def assert_agree(rule, dim=13):
    assert native.unsupported(row_step(rule, dim)) is None
    got, want = run(native, rule, dim), run(xla, rule, dim)
    for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dim", [3, 16, 40])
@pytest.mark.parametrize("with_maximum", [False, True])
def test_sums_and_products_of_rows_shorter_and_longer_than_their_parts(dim, with_maximum):
    @dataclasses.dataclass(frozen=True)
    class Totals(Rule):
        part: str = str(with_maximum)
        slots = {"total": Slot(PER_ROW), "product": Slot(PER_ROW), "largest": Slot(PER_ROW)}

        def update(self, row, grad, slots, h):
            largest = jnp.max(row) if self.part == "True" else jnp.sum(grad)
            return row, {"total": jnp.sum(row), "product": jnp.prod(1 + 0.1 * row), "largest": largest}

    assert_agree(Totals(), dim)


def test_a_maximum_does_not_lose_a_nan():
    @dataclasses.dataclass(frozen=True)
    class Peak(Rule):
        slots = {"peak": Slot(PER_ROW)}

        def update(self, row, grad, slots, h):
            return row, {"peak": jnp.max(jnp.log(row))}  # NaN where an element is negative

    got, want = run(native, Peak(), 9), run(xla, Peak(), 9)
    np.testing.assert_array_equal(got[1][0], want[1][0])
    assert np.isnan(got[1][0]).any()


def test_one_code_serves_every_dim():
    @dataclasses.dataclass(frozen=True)
    class Half(Rule):
        def update(self, row, grad, slots, h):
            return row - grad * (row.shape[0] // 2), slots

    @dataclasses.dataclass(frozen=True)
    class Root(Rule):
        def update(self, row, grad, slots, h):
            return row - grad / float(row.shape[0]) ** 0.5, slots

    @dataclasses.dataclass(frozen=True)
    class Mean(Rule):
        def update(self, row, grad, slots, h):
            return row - jnp.mean(grad), slots

    assert translate(row_step(Mean(), 8)).symbol == translate(row_step(Mean(), 12)).symbol
    for rule in (Half(), Root(), Mean()):
        assert_agree(rule, dim=8)
        assert_agree(rule, dim=11)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (lambda x: jnp.sort(x), "'sort'"),
        (lambda x: jnp.cumsum(x), "'cumsum'"),
        (lambda x: x[::-1], "'rev'"),
        (lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32), "bfloat16"),
        (lambda x: x * jnp.asarray(np.arange(9.0), jnp.float32), "constant array"),
        (lambda x: (x.astype(jnp.int32) // 3).astype(jnp.float32), "int32"),
        (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y * 2, x), "'"),
        (lambda x: jnp.outer(x, x).sum(0), "'"),
    ],
)
def test_what_has_no_translation_runs_on_xla_and_says_why(function, named):
    @dataclasses.dataclass(frozen=True)
    class Odd(Rule):
        def update(self, row, grad, slots, h):
            return row - function(grad), slots

    step = row_step(Odd(), 9)
    assert named in native.unsupported(step)
    with pytest.warns(UserWarning, match="Odd runs on the slower 'xla' backend"):
        assert choose("native", step) is xla
    with pytest.raises(RuntimeError, match="backend 'native' cannot run Odd"):
        run(native, Odd(), 9)


def test_a_rule_that_fails_says_so_itself():
    @dataclasses.dataclass(frozen=True)
    class Wrong(Rule):
        slots = {"s": Slot(PER_ROW)}

        def update(self, row: Any, grad: Any, slots: Any, h: Any) -> Any:
            raise ValueError("no such thing")

    with pytest.raises(ValueError, match="no such thing"):
        native.unsupported(row_step(Wrong(), 4))
