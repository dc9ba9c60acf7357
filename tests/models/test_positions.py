"""A loss at every position: each state is that of a history cut there, and its target is the next element."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from sparrow.losses import SampledSoftmax
from sparrow.models import HSTU, STU, HSTUChannel, HSTUMatch, HSTURetriever, Inputs, SASRec, Sequence, Tower

DIM, LENGTHS = 4, np.array([5, 0, 2])
ROWS = np.random.default_rng(0).normal(size=(20, DIM)).astype(np.float32)
SEEN = np.array([[1, 2, 3, 4, 5], [0, 0, 0, 0, 0], [7, 8, 0, 0, 0]])
ITEMS = np.array([6, 2, 9, 11, 3, 13])  # the items chosen, then three that were drawn
INPUTS = Inputs(acts={"item": DIM}, sequences={"seen": DIM}, groups={"uih": ["seen"], "item": ["item"]})
TOWER = {"item_tower": Tower("item"), "negatives": "sampled", "every_position": True}
BUILDERS = {
    "sasrec": lambda inputs, **more: SASRec(
        inputs, **TOWER, history_input="uih", max_length=5, dropout_ratio=0.0, rngs=nnx.Rngs(0), **more
    ),
    "hstu_match": lambda inputs, **more: HSTUMatch(
        inputs, **TOWER, hstu=HSTU(DIM, 2, 2, 2, 8, 2), rngs=nnx.Rngs(0), **more
    ),
    "hstu_retriever": lambda inputs, **more: HSTURetriever(
        inputs, **TOWER, channel=HSTUChannel(STU(DIM, 2, 2, 2, 8, 8)), rngs=nnx.Rngs(0), **more
    ),
}


def batch(seen, lengths, items):
    return {"item": jnp.asarray(ROWS[items]), "seen": Sequence(jnp.asarray(ROWS[seen]), jnp.asarray(lengths))}


called = nnx.jit(lambda model, acts: model(acts, {}))


@pytest.mark.parametrize("name", BUILDERS)
def test_states_targets_and_examples(name):
    model = BUILDERS[name](INPUTS)
    found = called(model, batch(SEEN, LENGTHS, ITEMS))["positions"]
    there = np.flatnonzero(found.weights)
    assert np.asarray(found.examples)[there].tolist() == [0] * 5 + [2] * 2
    np.testing.assert_array_equal(found.item[there], ROWS[[2, 3, 4, 5, 6, 8, 9]])
    np.testing.assert_array_equal(found.negatives, ROWS[[11, 3, 13]])
    assert (found.keys[there][:, None] == found.negative_keys).nonzero()[0].tolist() == [1]  # item 3 follows item 2
    # No state knows what comes after it: it is the vector of the history that ends there.
    model.eval()
    for token, (example, length) in zip(there, [*((0, n) for n in range(1, 6)), (2, 1), (2, 2)], strict=True):
        cut = called(model, batch(SEEN[[example]], np.array([length]), ITEMS[:1]))
        assert set(cut) == {"query", "item"}
        np.testing.assert_allclose(found.query[token], cut["query"][0], rtol=1e-5, atol=1e-6)


def test_gradients_are_those_of_single_rows():
    model = BUILDERS["sasrec"](INPUTS)

    def total(values, items):
        acts = {"item": items, "seen": Sequence(values, jnp.asarray(LENGTHS))}
        found = model(acts, {})["positions"]
        return (SampledSoftmax().values(found, None, ()) * found.weights).sum()

    def one_by_one(values, items):
        sum_of = 0.0
        for example, length in ((0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (2, 1), (2, 2)):
            target = values[example, length] if length < LENGTHS[example] else items[example]
            acts = {"item": target[None], "seen": Sequence(values[example][None], jnp.array([length]))}
            query = model.query(acts, {})[0]
            row = SEEN[example, length] if length < LENGTHS[example] else ITEMS[example]
            others = jnp.stack([items[i] for i in (3, 4, 5) if ITEMS[i] != row])
            scores = jnp.concatenate([(target @ query)[None], others @ query])
            sum_of += jax.nn.logsumexp(scores) - scores[0]
        return sum_of

    arguments = jnp.asarray(ROWS[SEEN]), jnp.asarray(ROWS[ITEMS])
    for found, expected in zip(
        jax.jit(jax.grad(total, (0, 1)))(*arguments), jax.jit(jax.grad(one_by_one, (0, 1)))(*arguments), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_dropout_of_the_input():
    """Layers that do nothing: what changes between two steps is the input, and each value is doubled or left out."""
    hstu = HSTU(DIM, 1, DIM, DIM, 8, 1, input_dropout_ratio=0.5)
    model = HSTUMatch(INPUTS, **TOWER, hstu=hstu, rngs=nnx.Rngs(0))
    model.hstu.layers[0].output.kernel[...] = jnp.zeros_like(model.hstu.layers[0].output.kernel)
    acts = batch(SEEN, LENGTHS, ITEMS)
    steps = [np.asarray(model.states(acts, {})[0])[: LENGTHS.sum()] for _ in range(2)]
    model.eval()
    complete = np.asarray(model.states(acts, {})[0])[: LENGTHS.sum()]
    for found in steps:
        np.testing.assert_allclose(found[found != 0], 2 * complete[found != 0], rtol=1e-5)
        assert 0 < (found == 0).sum() < found.size
    assert (steps[0] != steps[1]).any()


def test_what_would_show_the_future_is_refused():
    wide = Inputs(
        acts={"item": DIM, "kind": 2}, sequences={"seen": DIM}, groups={"uih": ["seen"], "item": ["item", "kind"]}
    )
    with pytest.raises(ValueError, match=r"same order; their widths are \[4, 2\] and \[4\]"):
        BUILDERS["sasrec"](wide)
    context = Inputs(
        acts={"item": DIM, "user": 2},
        sequences={"seen": DIM},
        groups={"uih": ["seen"], "item": ["item"], "contextual": ["user"]},
    )
    with pytest.raises(ValueError, match="excludes the group 'contextual'"):
        BUILDERS["hstu_retriever"](context)
    long = batch(np.zeros((1, 9), int), np.array([9]), ITEMS[:1])
    with pytest.raises(ValueError, match="max_length must be at least that of the sequences, 9, got 5"):
        BUILDERS["sasrec"](INPUTS)(long, {})
