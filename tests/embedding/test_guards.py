"""Gradients of tables are refused while tracing; everything else that is differentiated goes on as before."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sparrow as sp

BACKENDS = [name for name in ("xla", "native") if name in sp.backends()]
TABLE = sp.TableSpec(name="t", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.Adagrad(0.1))
EMB = {name: sp.Embedder([sp.FeatureSpec(name="f", table_spec=TABLE)], name) for name in BACKENDS}


@pytest.fixture(params=BACKENDS)
def case(request):
    """A loss of parameters, state and batch that looks up inside."""
    emb = EMB[request.param]

    def loss(w, state, batch):
        return jnp.sum(emb.lookup(state, batch)["f"] @ w) ** 2

    return emb, loss, jnp.arange(4.0), emb.init(jax.random.key(0)), emb.pack({"f": [[1, 2], [], [2]]})


def with_tables(loss, state):
    """The loss by the tables alone, which are floating-point."""
    return lambda tables, w, batch: loss(w, sp.EmbeddingState(state.step, state.seed, tables, state.slots), batch)


REFUSED = {
    "grad by the state": lambda f, w, s, b: jax.grad(f, argnums=1, allow_int=True)(w, s, b),
    "grad by both": lambda f, w, s, b: jax.grad(f, argnums=(0, 1), allow_int=True)(w, s, b),
    "grad by the tables": lambda f, w, s, b: jax.grad(with_tables(f, s))(s.tables, w, b),
    "under jit": lambda f, w, s, b: jax.jit(jax.grad(with_tables(f, s)))(s.tables, w, b),
    "through jit": lambda f, w, s, b: jax.grad(jax.jit(with_tables(f, s)))(s.tables, w, b),
    "through checkpoint": lambda f, w, s, b: jax.grad(jax.checkpoint(with_tables(f, s)))(s.tables, w, b),
    "through scan": lambda f, w, s, b: jax.grad(
        lambda t: jax.lax.scan(lambda c, _: (c + with_tables(f, s)(t, w, b), None), 0.0, None, 2)[0]
    )(s.tables),
    "vjp": lambda f, w, s, b: jax.vjp(lambda t: with_tables(f, s)(t, w, b), s.tables),
    "jvp": lambda f, w, s, b: jax.jvp(lambda t: with_tables(f, s)(t, w, b), (s.tables,), (s.tables,)),
    "value_and_grad": lambda f, w, s, b: jax.value_and_grad(with_tables(f, s))(s.tables, w, b),
    "tables as nnx.Param": lambda f, w, s, b: nnx.grad(lambda p: with_tables(f, s)(p.get_value(), w, b))(
        nnx.Param(s.tables)
    ),
}


@pytest.mark.parametrize("how", REFUSED)
def test_gradients_of_tables_are_refused(case, how):
    _, loss, w, state, batch = case
    with pytest.raises(TypeError, match="take them at the activations"):
        REFUSED[how](loss, w, state, batch)


def scanned(loss, w, state, batch):
    """The state in the carry of a scan, which is differentiated by the parameters."""

    def body(carry, _):
        w, state = carry
        return (w * 1.5, state), loss(w, state, batch)

    return jax.lax.scan(body, (w, state), None, 2)[1].sum() / (1 + 1.5**2)


ALLOWED = {
    "grad": lambda f, w, s, b: jax.grad(f)(w, s, b),
    "jit": lambda f, w, s, b: jax.jit(jax.grad(f))(w, s, b),
    "closed over": lambda f, w, s, b: jax.grad(lambda w: f(w, s, b))(w),
    "through jit": lambda f, w, s, b: jax.grad(jax.jit(f))(w, s, b),
    "checkpoint": lambda f, w, s, b: jax.grad(jax.checkpoint(f))(w, s, b),
    "checkpoint under jit": lambda f, w, s, b: jax.jit(jax.grad(jax.checkpoint(f)))(w, s, b),
    "scan": lambda f, w, s, b: jax.grad(lambda w: scanned(f, w, s, b))(w),
    "cond": lambda f, w, s, b: jax.grad(lambda w: jax.lax.cond(w[1] > 0, f, lambda w, *_: w.sum(), w, s, b))(w),
    "vjp": lambda f, w, s, b: jax.vjp(lambda w: f(w, s, b), w)[1](1.0)[0],
    "jvp": lambda f, w, s, b: jnp.stack([jax.jvp(lambda w: f(w, s, b), (w,), (e,))[1] for e in jnp.eye(4)]),
    "stopped": lambda f, w, s, b: jax.grad(lambda w, s: f(w, jax.lax.stop_gradient(s), b), (0, 1), allow_int=True)(
        w, s
    )[0],
    "inside a vmap": lambda f, w, s, b: jax.vmap(jax.grad(f), (0, None, None))(w[None], s, b)[0],
}


@pytest.mark.parametrize("how", ALLOWED)
def test_other_gradients_go_on(case, how):
    emb, loss, w, state, batch = case
    acts = emb.lookup(state, batch)["f"]
    want = 2 * jnp.sum(acts @ w) * acts.sum(axis=0)
    np.testing.assert_allclose(ALLOWED[how](loss, w, state, batch), want, rtol=1e-5)
