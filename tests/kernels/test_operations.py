"""One list of operations that a rule may use: documented, complete, and right on every backend."""

import functools
import re

import jax
import numpy as np
import pytest

from sparrow.jaxprs import walk
from sparrow.kernels import BACKENDS, cuda, xla
from sparrow.kernels.translate.graph import OPERATIONS, trace
from sparrow.rules import Rule
from tests.conftest import AVAILABLE
from tests.kernels.cuda import emulator
from tests.kernels.native.problems import random_grads, random_state, row_step, scalars
from tests.kernels.operations import RULES, PerRow


def test_the_docs_of_rules_list_them():
    section = Rule.__doc__.split("Operations", 1)[1].split("Attributes:")[0]
    assert set(re.findall(r"``(\w+)``", section)) == OPERATIONS


def used(rule):
    names = set()

    def note(equation, _):
        names.add(equation.primitive.name)
        return [None] * len(equation.outvars)

    traced = trace(row_step(rule, 8))
    walk(traced, [None] * len(traced.in_avals), note, lambda *_: None)
    return names


def test_the_tests_use_them_all():
    assert not OPERATIONS - set().union(*map(used, RULES))


def run(backend, rule, dim):
    rng = np.random.default_rng(3)
    step = row_step(rule, dim)
    state, grads = random_state(step, 20, rng), random_grads(rng, dim, 20, count=30)
    return jax.jit(functools.partial(backend.update, step))(*state, grads, scalars(rule))


def assert_agrees(backend, rule, dim):
    assert backend.unsupported(row_step(rule, dim)) is None
    got, want = run(backend, rule, dim), run(xla, rule, dim)
    for i, (g, w) in enumerate(zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-5, err_msg=f"leaf {i}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}{getattr(rule, 'part', '')}")
@pytest.mark.parametrize("backend", [name for name in AVAILABLE if name != "xla"])
def test_every_operation_on_every_backend(backend, rule):
    assert_agrees(BACKENDS[backend], rule, 13)
    if isinstance(rule, PerRow):
        assert_agrees(BACKENDS[backend], rule, 1)


@pytest.mark.skipif(emulator.unavailable() is not None, reason="the GPU runs them, or there is no compiler")
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.name}{getattr(rule, 'part', '')}")
def test_every_operation_on_the_emulated_gpu(rule):
    with emulator.emulation():
        assert_agrees(cuda, rule, 13)
