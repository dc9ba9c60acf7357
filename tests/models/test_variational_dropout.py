"""Features that carry nothing are dropped, and those that carry the label are kept."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from sparrow import losses, models
from sparrow.models import Inputs, VariationalDropout, extra_losses

INPUTS = Inputs({"good": 2, "bad": 2}, {"age": 1}, {"all": ["good", "bad", "age"], "one": ["good"]}, sequences={})
RECORD = {"name": "multi_tower", "towers": [{"input": "all"}, {"input": "one"}]}


def build(inputs=INPUTS, record=RECORD, strength=0.5):
    return VariationalDropout(models.registry.from_dict(record), inputs, strength, rngs=nnx.Rngs(0))


def batch(seed, size=128):
    rng = np.random.default_rng(seed)
    acts = {name: rng.normal(size=(size, 2)).astype(np.float32) for name in ("good", "bad")}
    return acts, {"age": rng.normal(size=(size, 1)).astype(np.float32)}, (acts["good"][:, 0] > 0).astype(np.float32)


def test_evaluation_is_the_mean_and_the_penalty_its_equation():
    model = build()
    apply, params, rest = models.functional(model)
    acts, numbers, _ = batch(0)
    p = 1 / (1 + np.exp(-np.asarray(params["logits"]["all"])))
    scaled = {"good": acts["good"] * (1 - p[0]), "bad": acts["bad"] * (1 - p[1]), "age": numbers["age"] * (1 - p[2])}
    x = np.concatenate([scaled["good"], scaled["bad"], scaled["age"], acts["good"]], axis=1)  # "one" is whole
    linear = params["model"]["logits"]["linear"]
    expected = x @ linear["kernel"] + linear["bias"]
    outputs = apply.predict(params, rest, acts, numbers)
    np.testing.assert_allclose(outputs["logits"], expected[:, 0], rtol=1e-4, atol=1e-5)
    trained, after = apply.train(params, rest, acts, numbers)
    np.testing.assert_allclose(trained["loss/variational_dropout_all"], 0.5 / 128 * (1 - p).sum(), rtol=1e-5)
    again, _ = apply.train(params, after, acts, numbers)
    assert (np.asarray(trained["logits"]) != np.asarray(again["logits"])).any()  # fresh noise
    assert set(outputs) == {"logits"}


def test_useless_features_are_dropped():
    inputs = Inputs({"good": 2, "bad": 2}, {"age": 1}, {"all": ["good", "bad", "age"]})
    model = build(inputs, {"name": "multi_tower", "towers": [{"input": "all"}]}, strength=20.0)
    apply, params, rest = models.functional(model)
    optimizer = optax.adam(0.05)

    @jax.jit
    def step(params, state, rest, acts, numbers, labels):
        def loss(params):
            outputs, new = apply.train(params, rest, acts, numbers)
            penalty = sum(extra_losses(outputs).values())
            return losses.reduce(losses.binary_cross_entropy(outputs["logits"], labels)) + penalty, new

        grads, new = jax.grad(loss, has_aux=True)(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, new

    state = optimizer.init(params)
    for seed in range(150):
        params, state, rest = step(params, state, rest, *batch(seed))
    kept = 1 - jax.nn.sigmoid(jnp.asarray(params["logits"]["all"]))
    assert kept[0] > 0.9
    assert kept[1] < 0.3
    assert kept[2] < 0.3
