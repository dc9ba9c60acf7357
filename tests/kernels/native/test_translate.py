"""Equations that users write, in C++ and in JAX."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sparrow.kernels import choose, native, xla
from sparrow.kernels.native.translate import translate
from sparrow.rules import PER_ELEMENT, PER_ROW, Rule, Slot
from tests.kernels.native.problems import random_grads, random_state, row_step, scalars

ELEMENT_WISE = [
    *(jnp.abs, jnp.sign, jnp.sqrt, jax.lax.rsqrt, jnp.exp, jnp.exp2, jnp.expm1, jnp.log, jnp.log1p, jnp.tanh),
    *(jnp.sin, jnp.cos, jnp.floor, jnp.ceil, jnp.round, jax.nn.sigmoid, jax.nn.relu, jax.nn.softplus, jnp.square),
    *(jnp.cbrt, jax.scipy.special.erf, jnp.reciprocal, jnp.arctan, jnp.cosh, jnp.isfinite, jnp.signbit, jnp.isnan),
    lambda x: x**3,
    lambda x: x**-2,
    lambda x: jnp.abs(x) ** 0.3,
    lambda x: jnp.clip(x, -0.5, 0.5),
    lambda x: jnp.where((x > 0) & ~(x > 1) | (x < -1), x, -x),
    lambda x: jnp.maximum(x, 0.1) + jnp.minimum(x, 0.2) % 0.3,
    lambda x: (x * 100).astype(jnp.int32) * 3 - 7,
    lambda x: (x * 1e30).astype(jnp.int32) >> 3,
    lambda x: (jnp.abs(x) * 1000).astype(jnp.uint32) << 5 ^ jnp.uint32(77),
    lambda x: jnp.nan_to_num(jnp.log(x), nan=-3.0),
    lambda x: jax.lax.bitcast_convert_type(x, jnp.int32) & 0xFF,
    lambda x: x.astype(jnp.bfloat16).astype(jnp.float32) + x.astype(jnp.float16).astype(jnp.float32),
    lambda x: jnp.arange(x.shape[0], dtype=jnp.float32) * x,
    lambda x: jnp.broadcast_to(jnp.sum(x), x.shape),
    lambda x: jnp.full_like(x, 2.0),
]

PER_ROW_NUMBERS = [
    *(jnp.sum, jnp.mean, jnp.max, jnp.min, jnp.prod, jnp.linalg.norm, jnp.var, jnp.std),
    lambda x: jnp.dot(x, x),
    lambda x: jnp.sum(x, keepdims=True)[0] if False else jnp.mean(x, keepdims=True).reshape(()),
    lambda x: jnp.sum(x - jnp.mean(x)) + jnp.max(x / jnp.max(jnp.abs(x))),
    lambda x: jnp.sum(x > 0).astype(jnp.float32) / x.shape[0],
    lambda x: jax.nn.logsumexp(x),
]


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


def test_element_wise_functions():
    """All in one rule, each with a slot of its own, so that one compilation does."""

    @dataclasses.dataclass(frozen=True)
    class Many(Rule):
        part: str = "0"

        @property
        def slots(self):
            return {f"s{i}": Slot(PER_ELEMENT) for i in range(len(self.functions()))}

        def functions(self):
            return ELEMENT_WISE[int(self.part) * 12 :][:12]

        def update(self, row, grad, slots, h):
            x = grad - 0.5 * row
            return row - grad, {f"s{i}": f(x).astype(jnp.float32) for i, f in enumerate(self.functions())}

    for part in range(-(-len(ELEMENT_WISE) // 12)):
        assert_agree(Many(part=str(part)))


def test_numbers_per_row():
    @dataclasses.dataclass(frozen=True)
    class Rows(Rule):
        slots = {f"s{i}": Slot(PER_ROW) for i in range(len(PER_ROW_NUMBERS))}

        def update(self, row, grad, slots, h):
            x = grad - 0.5 * row
            new = {f"s{i}": f(x) for i, f in enumerate(PER_ROW_NUMBERS)}
            # Three passes deep, with vectors of the first kept for the last.
            scaled = x / (1 + new["s0"] ** 2)
            return row - h.learning_rate * scaled / (1 + jnp.sum(scaled * scaled)) * jnp.where(x > 0, 1.0, 2.0), new

    assert_agree(Rows())
    assert_agree(Rows(), dim=1)


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
