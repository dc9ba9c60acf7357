"""Trees of features: inputs, activations and gradients keep their structure."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import sparrow as sp
from sparrow import linen as sparrow_linen
from sparrow import nnx as sparrow_nnx


class Pair(NamedTuple):
    shown: Any
    seen: Any


def table(name):
    return sp.TableSpec(name=name, vocabulary_size=20, embedding_dim=4, optimizer=sp.rules.SGD(0.5), combiner="mean")


USERS, ITEMS = table("users"), table("items")


def feature(name, of):
    return sp.FeatureSpec(name=name, table_spec=of)


# Two leaves are called "id", and two "0".
FEATURES = {
    "user": {"id": feature("id", USERS), "friends": [feature("0", USERS), feature("1", USERS)]},
    "item": Pair(shown=feature("id", ITEMS), seen=(feature("0", ITEMS),)),
}
INPUTS = {
    "user": {"id": [1, 2], "friends": [[[3], [4, 5]], [6, 7]]},
    "item": Pair(shown=[1, 2], seen=([[], [2, 3]],)),
}
FLAT = {"user/id": [1, 2], "user/friends/0": [[3], [4, 5]], "user/friends/1": [6, 7], "item/shown": [1, 2],
        "item/seen/0": [[], [2, 3]]}  # fmt: skip


def flat_embedder():
    tables = {"user": USERS, "item": ITEMS}
    return sp.Embedder([feature(name, tables[name.split("/")[0]]) for name in FLAT])


def test_structure_is_kept_from_inputs_to_gradients():
    nested, flat = sp.Embedder(FEATURES), flat_embedder()
    assert [feature.name for feature in nested.features] == list(FLAT)
    state = nested.init(jax.random.key(0))
    batch, expected = nested.pack(INPUTS), flat.pack(FLAT)
    acts, by_name = nested.lookup(state, batch), flat.lookup(state, expected)
    assert jax.tree.structure(acts) == jax.tree.structure(jax.tree.map(lambda _: 0, acts))
    assert isinstance(acts["item"], Pair)
    assert isinstance(acts["user"]["friends"], list)
    assert isinstance(acts["item"].seen, tuple)
    for name, array in nested.by_name(acts).items():
        np.testing.assert_array_equal(array, by_name[name])
    np.testing.assert_array_equal(acts["item"].shown, by_name["item/shown"])

    def loss(acts):
        return sum(jnp.sum(jnp.sin((i + 1) * leaf)) for i, leaf in enumerate(nested.by_name(acts).values()))

    grads = jax.grad(loss)(acts)
    assert jax.tree.structure(grads) == jax.tree.structure(acts)
    one = nested.update(state, batch, grads)
    other = flat.update(state, expected, dict(nested.by_name(grads)))
    for name in ("users", "items"):
        np.testing.assert_array_equal(nested.table(one, name), flat.table(other, name))
        assert not np.array_equal(nested.table(one, name), nested.table(state, name))


def test_unique_names_are_kept_and_a_dict_goes_by_its_keys():
    embedder = sp.Embedder({"left": feature("a", USERS), "right": feature("b", ITEMS)})
    assert [feature.name for feature in embedder.features] == ["a", "b"]
    batch = embedder.pack({"left": [1], "right": [2]}, capacity={"a": 1, "b": 1})
    assert list(embedder.lookup(embedder.init(jax.random.key(0)), batch)) == ["left", "right"]


def test_an_optimizer_trains_a_tree():
    embedder = sp.Embedder(FEATURES)
    optimizer = sp.Optimizer(embedder, optax.sgd(0.1))
    state = optimizer.init(embedder.init(jax.random.key(0)), {"w": jnp.ones(4)})

    def loss_fn(params, acts, labels):
        return jnp.mean(jnp.square((acts["user"]["id"] + acts["item"].seen[0]) @ params["w"] - labels))

    losses = []
    for _ in range(10):
        state, info = optimizer.step(state, loss_fn, embedder.pack(INPUTS), jnp.array([1.0, -1.0]))
        losses.append(float(info.loss))
    assert losses[-1] < 0.5 * losses[0]


def test_flax_layers_take_trees():
    class Model(nnx.Module):
        def __init__(self, rngs):
            self.embed = sparrow_nnx.Embed(FEATURES, rngs=rngs)

        def __call__(self, batch):
            acts = self.embed(batch)
            return jnp.sum(acts["user"]["id"] * acts["item"].shown, axis=1)

    model = Model(nnx.Rngs(0))
    optimizer = sparrow_nnx.Optimizer(model, optax.sgd(0.1))
    batch, before = model.embed.pack(INPUTS), np.asarray(model.embed.table("users"))

    def loss_fn(model, batch):
        return jnp.mean(jnp.square(model(batch) - 1.0))

    _, grads = sparrow_nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    moved = np.abs(np.asarray(model.embed.table("users")) - before).max(axis=1) > 0
    assert moved[[1, 2]].all()
    assert not moved[3:].any() or not moved[8:].any()
    layer = sparrow_linen.Embed(FEATURES)
    made = layer.embedder.pack(INPUTS)
    acts = layer.apply(layer.init(jax.random.key(0), made), made)
    assert acts["item"].shown.shape == (2, 4)


WRONG = {
    "missing": (lambda inputs: inputs["user"].pop("id"), r"inputs\['user'\] lacks 'id'"),
    "unknown": (
        lambda inputs: inputs["user"].update(ids=[1]),
        r"inputs\['user'\] has no feature 'ids': did you mean 'id'",
    ),
    "short": (
        lambda inputs: inputs["user"]["friends"].pop(),
        r"inputs\['user'\]\['friends'\] must be a list of 2.*got 1",
    ),
    "other kind": (lambda inputs: inputs.update(item=3), r"inputs\['item'\] must hold shown, seen, .* got a int"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_tree_of_another_structure_is_refused(case):
    change, message = WRONG[case]
    inputs = {**INPUTS, "user": {**INPUTS["user"], "friends": list(INPUTS["user"]["friends"])}}
    change(inputs)
    with pytest.raises(ValueError, match=message):
        sp.Embedder(FEATURES).pack(inputs)


def test_a_list_goes_by_name():
    with pytest.raises(ValueError, match="two features are called 'id'; give them other names, or a place each"):
        sp.Embedder([feature("id", USERS), feature("id", ITEMS)])
    with pytest.raises(TypeError, match="takes FeatureSpecs, got 3"):
        sp.Embedder({"user": [3]})
    with pytest.raises(TypeError, match="inputs must be a mapping by feature name, got a list"):
        flat_embedder().pack([[1, 2]])
