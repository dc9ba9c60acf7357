"""Every mistake gets one clear sentence that names what is wrong, and changes nothing."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pyarrow as pa
import pytest

import sparrow as sp
from sparrow.rules import PER_ELEMENT, SGD, Adam, RowwiseAdagrad, Slot


def table(**changes):
    fields = {"name": "movies", "vocabulary_size": 10, "embedding_dim": 4, "optimizer": SGD(0.1)} | changes
    return sp.TableSpec(**fields)


def embedder(**changes):
    return sp.Embedder([sp.FeatureSpec(name="watched", table_spec=table(), **changes)], backend="xla")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "name must be a string that is not empty"),
        ({"vocabulary_size": 0}, "'movies': vocabulary_size must be an integer of at least 1, got 0"),
        ({"vocabulary_size": 2**31}, "vocabulary_size must be at most"),
        ({"embedding_dim": 2.5}, "embedding_dim must be an integer"),
        ({"embedding_dim": True}, "embedding_dim must be an integer"),
        ({"optimizer": 0.1}, "optimizer must be a rule such as"),
        ({"optimizer": optax.adam(0.1)}, "got an optax transformation, which is for dense parameters"),
        ({"combiner": "max"}, "combiner must be one of 'sum', 'mean', 'sqrtn', got 'max'"),
        ({"dtype": "int8"}, "dtype must be one of 'float32', 'bfloat16', 'float16', got 'int8'"),
        ({"dtype": "no such"}, "dtype must be one of"),
        ({"initializer": 3}, "initializer must be a function"),
        ({"min_value": float("nan")}, "min_value must be a number or None"),
        ({"min_value": 1.0, "max_value": 0.0}, "min_value 1.0 is above max_value 0.0"),
    ],
)
def test_table_spec(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        table(**changes)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(-0.1), "SGD.learning_rate must be a finite number at least 0, got -0.1"),
        (lambda: SGD("fast"), "SGD.learning_rate must be a number or a schedule"),
        (lambda: SGD(float("nan")), "SGD.learning_rate must be finite"),
        (lambda: SGD(0.1, nesterov=True), "nesterov=True needs a momentum"),
        (lambda: Adam(beta2=1.0), "Adam.beta2 must be a finite number at least 0 and below 1, got 1.0"),
        (lambda: Adam(bias_correction="rows"), "bias_correction must be one of 'step', 'row', got 'rows'"),
        (lambda: Adam(max_gradient=0), "Adam.max_gradient must be a finite number above 0"),
        (lambda: RowwiseAdagrad(weight_decay_mode="L2"), "weight_decay_mode must be one of 'none', 'l2', 'decouple'"),
        (lambda: RowwiseAdagrad(weight_decay=0.1), "weight_decay does nothing in weight_decay_mode='none'"),
    ],
)
def test_rules(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def rule(update, slots=None):
    """A user's rule with one mistake in it."""

    @dataclasses.dataclass(frozen=True)
    class Mine(sp.Rule):
        learning_rate: float = 0.1
        keep: float = 0.9

    Mine.slots = slots or {}
    Mine.update = update
    return Mine()


@pytest.mark.parametrize(
    ("mine", "message"),
    [
        (rule(lambda self, row, grad, slots, h: row), "Mine.update must return"),
        (
            rule(lambda self, row, grad, slots, h: (row, {}), {"m": Slot(PER_ELEMENT)}),
            r"Mine.update returns the slots \[\], but the rule declares \['m'\]",
        ),
        (
            rule(lambda self, row, grad, slots, h: (row, {"m": jnp.sum(grad)}), {"m": Slot(PER_ELEMENT)}),
            r"Mine.update returns slot 'm' as float32\[\], it must be float32\[4\]",
        ),
        (rule(lambda self, row, grad, slots, h: (row[:2], {})), r"Mine.update returns row as float32\[2\]"),
        (
            rule(lambda self, row, grad, slots, h: (row - self.keep * grad, {})),
            "Mine.update must read h.keep, not self.keep",
        ),
        (
            rule(lambda self, row, grad, slots, h: (row if self.keep else grad, {})),
            "Mine.update must read h.keep, not self.keep",
        ),
        (rule(sp.Rule.update), "Mine must define update"),
    ],
)
def test_user_rules(mine, message):
    with pytest.raises((ValueError, TypeError, NotImplementedError), match=message):
        sp.Embedder([sp.FeatureSpec(name="f", table_spec=table(optimizer=mine))], backend="xla")


def test_a_rule_without_the_decorator():
    class Bare(sp.Rule):
        keep: float = 0.9

    with pytest.raises(TypeError, match="Bare has fields of its own: decorate it"):
        Bare()


def test_feature_spec():
    with pytest.raises(TypeError, match="table_spec must be a TableSpec"):
        sp.FeatureSpec(name="f", table_spec="movies")
    with pytest.raises(ValueError, match="invalid_ids must be one of 'error', 'ignore', 'hash', got 'drop'"):
        sp.FeatureSpec(name="f", table_spec=table(), invalid_ids="drop")


def test_embedder_names():
    feature = sp.FeatureSpec(name="f", table_spec=table())
    with pytest.raises(ValueError, match="two features are called 'f'"):
        sp.Embedder([feature, feature])
    with pytest.raises(ValueError, match="two different tables are called 'movies'"):
        sp.Embedder([feature, sp.FeatureSpec(name="g", table_spec=table(embedding_dim=8))])
    with pytest.raises(ValueError, match=r"unknown backend 'xl': did you mean 'xla'\?"):
        sp.Embedder([feature], backend="xl")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([1.5, 2.0], "feature 'watched': ids must be integers, got float64"),
        ([True, False], "ids must be integers, got bool"),
        (["a"], "ids must be integers"),
        ([1, [2]], "a list holds either ids or lists of ids"),
        (np.zeros((2, 2, 2), int), "ids must be 1-D"),
        ([0, -1], "id -1 in row 1 is outside table 'movies', whose ids are 0 to 9"),
        ([[0], [], [3, 10]], "id 10 in row 2 is outside table 'movies'"),
        (np.array([2**63], np.uint64), "id 9223372036854775808 in row 0 is outside"),
        (sp.Ragged([1, 2], [0, 2, 1, 2]), "offsets must never decrease, but row 1 runs from 2 to 1"),
        (sp.Ragged([1, 2], [0, 1]), r"offsets must run from 0 to the number of ids \(2\), got 0 to 1"),
        (sp.Ragged([1, 2], [1, 2]), "offsets must run from 0"),
        (sp.Ragged([1, 2], [0.0, 2.0]), "offsets must be a 1-D array of integers"),
        (sp.Ragged([1, 2], [0, 2], [1.0, float("nan")]), "weights must be finite, but weight 1 is nan"),
        (sp.Ragged([1, 2], [0, 2], [1.0]), "2 ids need as many weights"),
        (sp.Ragged([1, 2], [0, 2], ["a", "b"]), "weights must be numbers"),
        (pa.array(["a"]), "expected an Arrow column of integers or of lists"),
        (pa.array([[1.5]]), "ids must be integers, got lists of double"),
        (pa.array([[1, None]]), "contains missing values"),
    ],
)
def test_ids(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        embedder().pack({"watched": given})


def test_batches_and_gradients():
    emb = embedder()
    state = emb.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"unknown feature 'watchd': did you mean 'watched'\?"):
        emb.pack({"watchd": [1]})
    with pytest.raises(ValueError, match="the batch lacks the feature watched"):
        emb.pack({})
    batch = emb.pack({"watched": [1, 2]})
    with pytest.raises(ValueError, match="act_grads lacks the feature 'watched'"):
        emb.update(state, batch, {})
    with pytest.raises(ValueError, match="act_grads has an unknown feature 'seen'"):
        emb.update(state, batch, {"watched": jnp.zeros((2, 4)), "seen": jnp.zeros((2, 4))})
    with pytest.raises(ValueError, match=r"act_grads\['watched'\] must have the shape \(2, 4\), got \(2, 3\)"):
        emb.update(state, batch, {"watched": jnp.zeros((2, 3))})
    other = sp.Embedder([sp.FeatureSpec(name="f", table_spec=table(name="songs"))], backend="xla")
    with pytest.raises(ValueError, match="packed by another Embedder"):
        other.lookup(other.init(jax.random.key(0)), batch)
    with pytest.raises(ValueError, match="only row gradients of the same Embedder"):
        _ = emb.row_grads(batch, {"watched": jnp.zeros((2, 4))}) + other.row_grads(
            other.pack({"f": [1]}), {"f": jnp.zeros((1, 4))}
        )


def test_views():
    emb = embedder()
    state = emb.init(jax.random.key(0))
    with pytest.raises(ValueError, match=r"unknown table 'movie': did you mean 'movies'\?"):
        emb.table(state, "movie")
    with pytest.raises(ValueError, match=r"table 'movies' has the shape \(10, 4\), got \(4, 10\)"):
        emb.with_table(state, "movies", np.zeros((4, 10)))
    with pytest.raises(ValueError, match="table 'movies' has no slot 'momentum'"):
        emb.with_slots(state, "movies", {"momentum": np.zeros((10, 4))})


def test_initializer_of_a_wrong_shape():
    bad = table(initializer=lambda key, shape, dtype: jnp.zeros((1, 1)))
    emb = sp.Embedder([sp.FeatureSpec(name="f", table_spec=bad)], backend="xla")
    with pytest.raises(ValueError, match=r"initializer of table 'movies' returns \(1, 1\), it must be \(10, 4\)"):
        emb.init(jax.random.key(0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda emb, state, batch: emb.init(0), r"init needs a key: emb.init\(jax.random.key\(0\)\)"),
        (
            lambda emb, state, batch: emb.lookup(state, {"watched": [1]}),
            r"pack the batch first: emb.pack\(inputs\)",
        ),
        (lambda emb, state, batch: emb.lookup(whole(emb, state), batch), "an Optimizer keeps it as state.embedding"),
        (lambda emb, state, batch: emb.table(whole(emb, state), "movies"), "got OptimizerState; an Optimizer keeps it"),
    ],
)
def test_arguments_of_another_kind(call, message):
    emb = embedder()
    with pytest.raises(TypeError, match=message):
        call(emb, emb.init(jax.random.key(0)), emb.pack({"watched": [1]}))


def whole(emb, state):
    return sp.Optimizer(emb, optax.sgd(0.1)).init(state, {})
