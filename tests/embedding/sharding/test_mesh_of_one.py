"""A mesh of one device costs nothing: its step is the program of no mesh."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import sparrow as sp


def lowered(mesh):
    """The step's program as XLA gets it."""
    table = sp.TableSpec(name="items", vocabulary_size=50, embedding_dim=4, optimizer=sp.rules.Adam(0.1))
    emb = sp.Embedder([sp.FeatureSpec(name="item", table_spec=table)], mesh=mesh)
    optimizer = sp.Optimizer(emb, optax.adam(0.1))
    state = optimizer.init(emb.init(jax.random.key(0)), {"w": jnp.ones(4)})

    def loss_fn(params, acts, labels):
        return jnp.mean((acts["item"] @ params["w"] - labels) ** 2)

    batch = emb.pack({"item": sp.Ragged(np.arange(12), np.array([0, 5, 5, 12]))})
    step = jax.jit(lambda state, batch, labels: optimizer.step(state, loss_fn, batch, labels), donate_argnums=0)
    return step.lower(state, batch, jnp.ones(3)).as_text()


def test_a_mesh_of_one_gives_the_program_of_no_mesh():
    assert lowered(jax.make_mesh((1,), ("data",))) == lowered(None)
