"""A model as pure functions: nothing of the model itself changes, and what is not a parameter is handed on."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import sparrow as sp
from sparrow import models
from sparrow.dense.paths import path_names
from sparrow.models import MLP, Inputs, Tower


def make(**options):
    inputs = Inputs(acts={"item": 4}, groups={"all": ["item"]})
    tower = Tower("all", MLP((16,), **options))
    return models.MultiTower(inputs, towers=(tower,), rngs=nnx.Rngs(0))


def test_parameters_have_plain_names():
    _, params, rest = models.functional(make())
    assert path_names(params) == [
        "logits/linear/bias",
        "logits/linear/kernel",
        "towers/0/mlp/layers/0/linear/bias",
        "towers/0/mlp/layers/0/linear/kernel",
    ]
    assert not jax.tree.leaves(rest)


def test_the_model_itself_stays_as_it_was():
    model = make(use_bn=True, dropout_ratio=0.5)
    before = jax.tree.map(np.asarray, nnx.to_pure_dict(nnx.state(model, (nnx.Param, nnx.BatchStat))))
    mode = nnx.graphdef(model)
    apply, params, rest = models.functional(model)
    _, after = jax.jit(apply.train)(params, rest, {"item": jnp.ones((3, 4))}, {})
    assert nnx.graphdef(model) == mode
    jax.tree.map(np.testing.assert_array_equal, before, nnx.to_pure_dict(nnx.state(model, (nnx.Param, nnx.BatchStat))))
    assert jax.tree.structure(after) == jax.tree.structure(rest)


def test_micro_batches_hand_the_rest_on():
    """Two micro-batches drop different units, and the step is the mean of their gradients."""
    apply, params, rest = models.functional(make(dropout_ratio=0.5, activation="none"))
    table = sp.TableSpec(name="items", vocabulary_size=9, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    embedder = sp.Embedder([sp.FeatureSpec(name="item", table_spec=table)], backend="xla")
    optimizer = sp.Optimizer(embedder, optax.sgd(0.1))
    state = optimizer.init(embedder.init(jax.random.key(0)), params)

    def loss_fn(params, acts, rest, labels):
        outputs, rest = apply.train(params, rest, acts, {})
        return jnp.mean((outputs["logits"] - labels) ** 2), rest

    @jax.jit
    def step(state, rest, batches, labels):
        first, middle = optimizer.gradients(state, loss_fn, batches[0], rest, labels[0], has_aux=True, weight=0.5)
        second, after = optimizer.gradients(state, loss_fn, batches[1], middle, labels[1], has_aux=True, weight=0.5)
        return optimizer.apply(state, first + second)[0], first.dense, second.dense, after

    batch, labels = embedder.pack({"item": [1, 2, 3]}), jnp.ones(3)
    new, first, second, after = step(state, rest, (batch, batch), (labels, labels))
    assert int(after["towers"][0]["mlp"]["layers"][0]["dropout"]["rngs"]["count"]) == 2
    kernels = [grads["logits"]["linear"]["kernel"] for grads in (first, second)]
    assert np.abs(kernels[0] - kernels[1]).max() > 1e-3  # the same batch twice: only dropout can tell them apart
    expected = params["logits"]["linear"]["kernel"] - 0.1 * (kernels[0] + kernels[1])
    np.testing.assert_allclose(new.params["logits"]["linear"]["kernel"], expected, rtol=1e-5, atol=1e-6)
