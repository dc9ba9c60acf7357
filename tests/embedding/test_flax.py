"""The Flax layers do what the Embedder does, inside a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx

import sparrow as sp

TABLE = sp.TableSpec(name="t", vocabulary_size=10, embedding_dim=4, optimizer=sp.rules.Adagrad(0.1))
FEATURES = (sp.FeatureSpec(name="f", table_spec=TABLE),)
IDS = {"f": [[1, 2], [], [2]]}
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def by_hand(key, steps):
    """The same training with the Embedder alone."""
    emb = sp.Embedder(FEATURES)
    state, batch = emb.init(key), emb.pack(IDS)
    for _ in range(steps):
        state = emb.update(state, batch, jax.tree.map(jnp.ones_like, emb.lookup(state, batch)))
    return np.asarray(emb.table(state, "t"))


def test_nnx_layer():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.embed = sp.nnx.Embed(FEATURES, rngs=rngs)
            self.head = nnx.Linear(4, 1, rngs=rngs)

        def __call__(self, acts):
            return self.head(acts["f"])

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    assert set(nnx.state(model, nnx.Param)) == {"head"}  # dense optimizers do not see the tables

    @nnx.jit
    def step(model, optimizer, batch):
        acts = model.embed(batch)
        grads, act_grads = nnx.grad(lambda model, acts: acts["f"].sum() + model(acts).sum() * 0, argnums=(0, 1))(
            model, acts
        )
        optimizer.update(model, grads)
        model.embed.update(batch, act_grads)

    batch = model.embed.pack(IDS)
    for _ in range(3):
        step(model, optimizer, batch)
    np.testing.assert_array_equal(model.embed.table("t"), by_hand(nnx.Rngs(0).params(), 3))
    graph, state = nnx.split(model)
    assert int(nnx.merge(graph, state).embed.state.get_value().step) == 3


def test_linen_layer():
    embed = sp.linen.Embed(FEATURES)
    batch = embed.embedder.pack(IDS)
    variables = embed.init(jax.random.key(0), batch)
    assert set(variables) == {"embeddings"}
    start = np.asarray(embed.embedder.table(variables["embeddings"]["state"], "t"))
    acts = embed.apply(variables, batch)
    np.testing.assert_allclose(acts["f"][0], start[1] + start[2], rtol=1e-6)
    update = jax.jit(
        lambda v: embed.apply(v, batch, {"f": jnp.ones((3, 4))}, method="update", mutable=["embeddings"])[1]
    )
    new = update(variables)
    moved = np.asarray(embed.embedder.table(new["embeddings"]["state"], "t")) - start
    np.testing.assert_allclose(moved[:4, 0], [0.0, -0.1, -0.1, 0.0], atol=1e-6)


def test_linen_layer_inside_a_model():
    class Model(linen.Module):
        @linen.compact
        def __call__(self, batch):
            acts = sp.linen.Embed(FEATURES, name="embed")(batch)
            return linen.Dense(1)(acts["f"])

    batch = sp.linen.Embed(FEATURES).embedder.pack(IDS)
    variables = Model().init(jax.random.key(0), batch)
    assert Model().apply(variables, batch).shape == (3, 1)
    assert set(variables) == {"embeddings", "params"}


@pytest.mark.parametrize("example", ["click_model.py", "linen_model.py"])
def test_examples_run(example):
    command = [sys.executable, str(EXAMPLES / example), "--steps", "3"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "loss" in result.stdout or "AUC" in result.stdout
