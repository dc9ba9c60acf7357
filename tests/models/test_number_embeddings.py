"""Embeddings of numbers: their equations in float64 NumPy, their gradients, and numbers in the place of ids."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.test_util import check_grads

from sparrow import losses, metrics
from sparrow.data import AutoDis, MLPEmbedding, NumberEmbedding, RawFeature
from sparrow.models import Inputs, NumberEmbeddings, Sequence, functional, registry
from sparrow.models.complete import AutoDisNumbers, LinearNumbers

X = np.array([[0.3], [-1.2], [0.0], [2.0]], np.float32)


def autodis(layer, record, x):
    first, second, vectors = (np.asarray(w[...], np.float64) for w in (layer.first, layer.second, layer.vectors))
    h = x @ first
    h = np.where(h > 0, h, 0.01 * h)
    scores = (h @ second + record.keep_prob * h) / record.temperature
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ vectors


def test_equations():
    record = AutoDis(num_channels=3, temperature=0.5, keep_prob=0.7)
    layer = AutoDisNumbers(record, 4, rngs=nnx.Rngs(1))
    np.testing.assert_allclose(layer(X), autodis(layer, record, X.astype(np.float64)), rtol=1e-5, atol=1e-6)
    linear = LinearNumbers(2, 4, rngs=nnx.Rngs(1))
    two = np.concatenate([X, X**2], axis=1)
    np.testing.assert_allclose(linear(two), two @ np.asarray(linear.kernel[...]), rtol=1e-5)


@pytest.mark.parametrize("record", [MLPEmbedding(), AutoDis(num_channels=3, temperature=1.0)])
def test_gradients(record):
    layer = (
        LinearNumbers(1, 4, rngs=nnx.Rngs(1))
        if record == MLPEmbedding()
        else AutoDisNumbers(record, 4, rngs=nnx.Rngs(1))
    )
    graph, state = nnx.split(layer)
    check_grads(lambda state: nnx.merge(graph, state)(jnp.asarray(X)), (state,), order=1, modes=["rev"], rtol=1e-2)


def test_embedded_numbers_take_the_place_of_ids():
    """A model that multiplies embeddings refuses a plain number, and takes one with an embedding."""
    inputs = Inputs(
        acts={"user": 4, "user_wide": 1},
        numbers={"price": 1, "age": 1},
        sequences={"prices": 1},
        groups={"wide": ["user_wide"], "fm": ["user", "price"], "deep": ["user", "price", "age"]},
    )
    record = registry.from_dict({"name": "deepfm", "deep": {"hidden_units": [4]}})
    with pytest.raises(ValueError, match="'price' is a number"):
        record.build(Inputs(inputs.acts, inputs.numbers, inputs.groups), rngs=nnx.Rngs(0))
    built = []

    def build(inner, rngs):
        built.append(inner)
        plain = Inputs(inner.acts, inner.numbers, inner.groups)
        return record.build(plain, rngs=rngs)

    embeddings = {"price": (AutoDis(num_channels=2), 4), "prices": (MLPEmbedding(), 3)}
    model = NumberEmbeddings(build, inputs, embeddings, rngs=nnx.Rngs(0))
    assert built[0].acts == {"user": 4, "user_wide": 1, "price": 4}
    assert built[0].numbers == {"age": 1}
    assert built[0].sequences == {"prices": 3}
    acts = {"user": jnp.ones((2, 4)), "user_wide": jnp.ones((2, 1))}
    numbers = {
        "price": jnp.ones((2, 1)),
        "age": jnp.ones((2, 1)),
        "prices": Sequence(jnp.ones((2, 5, 1)), jnp.array([5, 0])),
    }
    assert model(acts, numbers)["logits"].shape == (2,)
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), nnx.state(model, nnx.Param))
    nnx.update(model, low)
    assert model.layers["price"](numbers["price"]).dtype == jnp.bfloat16


def test_records():
    embedded = RawFeature("price", embedding=AutoDis(num_channels=2), embedding_dim=4)
    assert embedded.width == 1
    assert embedded.learned_embedding == (AutoDis(num_channels=2), 4)
    assert not embedded.is_sparse
    for make, message in (
        (lambda: AutoDis(num_channels=0), "AutoDis.num_channels must be an integer of at least 1"),
        (lambda: AutoDis(num_channels=1, temperature=0.0), "AutoDis.temperature"),
        (lambda: RawFeature("x", embedding=MLPEmbedding()), "embedding_dim must be an integer"),
        (lambda: RawFeature("x", dim=2, embedding=AutoDis(num_channels=2), embedding_dim=4), "one number per row"),
        (lambda: RawFeature("x", embedding=MLPEmbedding(), boundaries=(1.0,), embedding_dim=4), "exclude each other"),
    ):
        with pytest.raises(ValueError, match=message):
            make()

    class Own(NumberEmbedding):
        pass

    inputs = Inputs(acts={}, numbers={"x": 1}, groups={"all": ["x"]})
    with pytest.raises(ValueError, match="no layers for the embedding"):
        NumberEmbeddings(lambda inputs, rngs: None, inputs, {"x": (Own(), 4)}, rngs=nnx.Rngs(0))


@pytest.mark.slow
@pytest.mark.parametrize(("record", "low", "high"), [(AutoDis(num_channels=8), 0.95, 1.0), (MLPEmbedding(), 0.4, 0.6)])
def test_autodis_learns_what_is_not_linear(record, low, high):
    """A yes for numbers near 0, in front of a linear model: a choice of vectors finds them, a linear layer cannot."""
    linear = registry.from_dict({"name": "multi_tower", "towers": [{"input": "all"}]})
    inputs = Inputs(acts={}, numbers={"x": 1}, groups={"all": ["x"]})
    built = NumberEmbeddings(lambda i, rngs: linear.build(i, rngs=rngs), inputs, {"x": (record, 8)}, rngs=nnx.Rngs(0))
    apply, params, rest = functional(built)
    optimizer = optax.adam(0.02)

    def examples(seed):
        x = np.random.default_rng(seed).normal(size=(256, 1)).astype(np.float32)
        return {"x": x}, (np.abs(x[:, 0]) < 0.6).astype(np.float32)

    @jax.jit
    def step(params, state, numbers, labels):
        def loss(params):
            return losses.binary_cross_entropy(apply.train(params, rest, {}, numbers)[0]["logits"], labels).mean()

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for seed in range(300):
        params, state = step(params, state, *examples(seed))
    numbers, labels = examples(10**6)
    metric = metrics.ExactAUC()
    scores = apply.predict(params, rest, {}, numbers)["logits"]
    assert low <= metric.compute(metric.update(metric.init(), scores, labels)) <= high
