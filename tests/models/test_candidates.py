"""HSTU with several candidates of one history: each is ranked as if it were the only one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sparrow import models
from sparrow.data import CANDIDATES
from sparrow.models import HSTU, Inputs, Sequence
from sparrow.models.sequences.layout import Tokens, no_rows
from tests.models.test_hstu_ranker import sequence

BATCH, LENGTH, COUNT, DIM = 4, 5, 3, 4
LENGTHS, COUNTS = np.array([5, 0, 1, 3]), np.array([3, 2, 1, 3])
STU = {"embedding_dim": 6, "num_heads": 2, "hidden_dim": 3, "attention_dim": 2, "scaling_seqlen": 9}
STU |= {"attn_num_layers": 2, "num_position_buckets": 4, "num_time_buckets": 5}
RECORD = {
    "name": "dlrm_hstu",
    "task_towers": [{"task": "click", "mlp": {"hidden_units": [3]}}, {"task": "kind", "num_classes": 2}],
    "mlp": {"hidden_units": [5]},
}
GROUPS = {
    "uih": ["clicks"],
    "uih_timestamp": ["when"],
    "candidate": ["item", "price"],
    "candidate_timestamp": ["now"],
    "contextual": ["user"],
}


def batch(seed=0):
    rng = np.random.default_rng(seed)
    acts = {
        "clicks": sequence(rng, LENGTHS, LENGTH, DIM),
        "item": sequence(rng, COUNTS, COUNT, DIM),
        "user": jnp.asarray(rng.normal(size=(BATCH, 2)), jnp.float32),
    }
    numbers = {"price": sequence(rng, COUNTS, COUNT, 1)}
    for name, lengths, size in (("when", LENGTHS, LENGTH), ("now", COUNTS, COUNT)):
        made = sequence(rng, lengths, size, 1)
        numbers[name] = made._replace(values=jnp.cumsum(60 * jnp.abs(made.values), axis=1) + 300 * (name == "now"))
    return acts, numbers


def several(**hstu):
    sequences = {"clicks": DIM, "item": DIM, "price": 1, "when": 1, "now": 1}
    inputs = Inputs(acts={"user": 2}, sequences=sequences, groups=GROUPS)
    return models.registry.from_dict({**RECORD, "hstu": {**STU, **hstu}}).build(inputs, rngs=nnx.Rngs(0))


def alone(**hstu):
    inputs = Inputs(
        acts={"user": 2, "item": DIM},
        numbers={"price": 1, "now": 1},
        sequences={"clicks": DIM, "when": 1},
        groups=GROUPS,
    )
    return models.registry.from_dict({**RECORD, "hstu": {**STU, **hstu}}).build(inputs, rngs=nnx.Rngs(0))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"max_attn_len": 2}], ids=["all", "near"])
def test_each_candidate_is_ranked_as_if_it_were_alone(options):
    acts, numbers = batch()
    together = nnx.jit(several(**options))(acts, numbers)
    np.testing.assert_array_equal(together.pop(CANDIDATES), COUNTS)
    assert {name: array.shape for name, array in together.items()} == {"click": (4, 3), "kind": (4, 3, 2)}
    model = nnx.jit(alone(**options))
    for place in range(COUNT):
        one = {name: (x.values[:, place] if name == "item" else x) for name, x in acts.items()}
        single = {name: (x if name == "when" else x.values[:, place]) for name, x in numbers.items()}
        expected = model(one, single)
        there = place < COUNTS
        for name, array in together.items():
            np.testing.assert_allclose(array[there, place], expected[name][there], rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(array[~there, place], 0)


def test_gradients_of_candidates_are_their_own():
    acts, numbers = batch()
    apply, params, rest = models.functional(several())

    def first(acts):
        return apply.predict(params, rest, acts, numbers)["click"][0, 0]

    grads = jax.jit(jax.grad(first, allow_int=True))(acts)
    of_items = np.asarray(grads["item"].values)
    assert of_items[0, 0].all()
    assert not of_items[0, 1:].any()
    assert not of_items[1:].any()
    assert np.asarray(grads["clicks"].values)[0].all()
    assert np.isfinite(np.asarray(grads["clicks"].values)).all()


@pytest.mark.parametrize(
    ("sequences", "acts", "options", "message"),
    [
        ({"price": 1}, {"item": DIM}, {}, "'candidate' must hold sequences alone, .* move 'item' to the group"),
        (
            {"item": DIM, "price": 1},
            {},
            {"mlp": {"hidden_units": [4], "use_bn": True}},
            "use_bn would count the padding of several candidates",
        ),
    ],
)
def test_wrong_candidates(sequences, acts, options, message):
    groups = {"uih": ["clicks"], "candidate": ["item", "price"]}
    inputs = Inputs(acts=acts, sequences={"clicks": DIM, **sequences}, groups=groups)
    hstu = {name: value for name, value in STU.items() if name != "num_time_buckets"}
    with pytest.raises(ValueError, match=message):
        models.registry.from_dict({**RECORD, "hstu": hstu, **options}).build(inputs, rngs=nnx.Rngs(0))


def test_times_of_candidates_are_of_several_too():
    inputs = Inputs(
        acts={"user": 2},
        numbers={"now": 1},
        sequences={"clicks": DIM, "item": DIM, "price": 1, "when": 1},
        groups=GROUPS,
    )
    with pytest.raises(ValueError, match="'candidate' and 'candidate_timestamp' must both hold sequences, or both"):
        models.registry.from_dict({**RECORD, "hstu": STU}).build(inputs, rngs=nnx.Rngs(0))


def test_a_history_of_one_candidate_is_its_last_element():
    """A candidate has the state that it would have as the next element of the history."""
    layers = HSTU(**{**STU, "num_time_buckets": None}).build(rngs=nnx.Rngs(0))
    values = jnp.asarray(np.random.default_rng(2).normal(size=(1, LENGTH, 6)), jnp.float32)
    context, all_of_it = jnp.zeros((1, 0, 6)), Sequence(values, jnp.array([LENGTH])).rows
    x, layout = layers(Tokens(context, all_of_it, no_rows(all_of_it), LENGTH, 0))
    history, item = Sequence(values[:, :-1], jnp.array([LENGTH - 1])), Sequence(values[:, -1:], jnp.array([1]))
    made, split = layers(Tokens(context, history.rows, item.rows, LENGTH - 1, 1))
    np.testing.assert_allclose(split.of_candidates(made)[:, 0], layout.newest(x), rtol=1e-5, atol=1e-6)
