"""Dense layers: every option of `MLP` against NumPy, in training and in evaluation."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sparrow import models
from sparrow.models import MLP
from sparrow.models.layers.mlp import make_activation

X = np.random.default_rng(0).normal(1.0, 2.0, (64, 3)).astype(np.float32)


class OneMLP(nnx.Module):
    """An MLP with the signature of a model, for `functional`."""

    def __init__(self, mlp, rngs):
        self.layers = mlp.build(3, rngs=rngs)

    def __call__(self, acts, numbers):
        return {"y": self.layers(acts["x"])}


def run(mlp, x=X):
    """Training output, what is left beside parameters, evaluation output with that, parameters."""
    apply, params, rest = models.functional(OneMLP(mlp, nnx.Rngs(0)))
    trained, after = jax.jit(apply.train)(params, rest, {"x": x}, {})
    evaluated = jax.jit(apply.predict)(params, after, {"x": x}, {})
    return np.asarray(trained["y"]), after, np.asarray(evaluated["y"]), params["layers"]["layers"]


def affine(layer, x):
    return x @ np.asarray(layer["linear"]["kernel"], np.float64) + np.asarray(layer["linear"].get("bias", 0.0))


def test_batch_norm_uses_the_batch_then_its_running_mean():
    trained, after, evaluated, params = run(MLP((5,), use_bn=True, activation="none"))
    assert "bias" not in params[0]["linear"]
    x = affine(params[0], X)
    mean, var = x.mean(axis=0), x.var(axis=0)
    np.testing.assert_allclose(trained, (x - mean) / np.sqrt(var + 1e-5), rtol=1e-3, atol=1e-4)
    norm = after["layers"]["layers"][0]["norm"]
    np.testing.assert_allclose(norm["mean"], 0.1 * mean, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(norm["var"], 0.9 + 0.1 * var, rtol=1e-3)
    running = (x - 0.1 * mean) / np.sqrt(0.9 + 0.1 * var + 1e-5)
    np.testing.assert_allclose(evaluated, running, rtol=1e-3, atol=1e-4)


def test_layer_norm_is_within_the_example():
    trained, after, evaluated, params = run(MLP((5,), use_ln=True, activation="none"))
    assert not jax.tree.leaves(after)
    x = affine(params[0], X)
    expected = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(trained, expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(trained, evaluated)


def test_dropout_is_fresh_every_step_and_off_in_evaluation():
    mlp = MLP((400,), dropout_ratio=0.25, activation="none", bias=False)
    apply, params, rest = models.functional(OneMLP(mlp, nnx.Rngs(0)))
    assert "bias" not in params["layers"]["layers"][0]["linear"]
    train = jax.jit(apply.train)
    first, after = train(params, rest, {"x": X}, {})
    again, _ = train(params, rest, {"x": X}, {})
    second, _ = train(params, after, {"x": X}, {})
    full = apply.predict(params, rest, {"x": X}, {})["y"]
    np.testing.assert_array_equal(first["y"], again["y"])
    kept = np.asarray(first["y"]) != 0
    assert (kept != (np.asarray(second["y"]) != 0)).any()
    assert abs(kept.mean() - 0.75) < 0.02
    np.testing.assert_allclose(np.asarray(first["y"])[kept], np.asarray(full)[kept] / 0.75, rtol=1e-4)


def test_dropout_per_layer():
    layers = MLP((4, 4), dropout_ratio=(0.0, 0.5)).build(3, rngs=nnx.Rngs(0))
    assert layers.layers[0].dropout.rate == 0
    assert layers.layers[1].dropout.rate == 0.5


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x * sigmoid(x),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "prelu": lambda x: np.where(x > 0, x, 0.25 * x),
    "dice": lambda x: x * sigmoid((x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)),
}


def test_every_activation():
    assert set(ACTIVATIONS) == set(models.ACTIVATIONS)
    x = np.linspace(-3, 9, 40, dtype=np.float32)[:, None]

    @jax.jit
    def run_all(x):
        return {name: make_activation(name, 1, nnx.Rngs(0))(x) for name in ACTIVATIONS}

    results = run_all(x)
    for name, expected in ACTIVATIONS.items():
        np.testing.assert_allclose(results[name], expected(x.astype(np.float64)), rtol=1e-4, atol=1e-5, err_msg=name)


def test_learned_activations_are_trained():
    for name, parameter in (("prelu", "negative_slope"), ("dice", "alpha")):
        _, params, _ = models.functional(OneMLP(MLP((5,), activation=name), nnx.Rngs(0)))
        assert parameter in params["layers"]["layers"][0]["activation"]


@pytest.mark.parametrize(
    "options", [{"use_bn": True}, {"use_ln": True}, {"activation": "dice"}, {"activation": "prelu"}]
)
def test_norms_keep_the_compute_dtype(options):
    apply, params, rest = models.functional(OneMLP(MLP((5, 4), **options), nnx.Rngs(0)))
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    (outputs, after) = jax.eval_shape(apply.train, low, rest, {"x": jnp.asarray(X, jnp.bfloat16)}, {})
    assert outputs["y"].dtype == jnp.bfloat16
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(after))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden_units": ()}, r"MLP.hidden_units must be integers of at least 1, got \(\)"),
        ({"hidden_units": (8, 0)}, r"MLP.hidden_units .* got \(8, 0\)"),
        ({"hidden_units": (8, True)}, r"MLP.hidden_units .* got \(8, True\)"),
        ({"hidden_units": 8}, r"MLP.hidden_units .* got 8"),
        ({"dropout_ratio": None}, r"MLP.dropout_ratio must be at least 0 and below 1, got None"),
        ({"dropout_ratio": [0.1, "0.2"]}, r"MLP.dropout_ratio must be .*, got \(0.1, '0.2'\)"),
        ({"dropout_ratio": 1.0}, r"MLP.dropout_ratio must be at least 0 and below 1, got 1.0"),
        ({"dropout_ratio": (0.1,)}, r"one for each of the 2 layers, got \(0.1,\)"),
        ({"activation": "rellu"}, r"MLP.activation: unknown activation 'rellu': did you mean 'relu'\?"),
        ({"use_bn": True, "use_ln": True}, r"MLP.use_bn and MLP.use_ln do not go together"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MLP(**{"hidden_units": (8, 4), **options})
