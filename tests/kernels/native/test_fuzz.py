"""Whatever the inputs hold, the kernels do what the equation says and touch nothing else."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
from hypothesis.extra import numpy as hnp

import sparrow as sp
from sparrow.kernels import EntryGradients, Lookups, native
from tests.kernels.native.problems import float64_row_grads, learning_rate, sgd_step

INT32 = st.integers(-(2**31), 2**31 - 1)
settings = hypothesis.settings(max_examples=40, deadline=None, derandomize=True)


def indices(limit: int) -> st.SearchStrategy[int]:
    """Mostly in range, some just outside, some anything."""
    return st.one_of(st.integers(0, max(limit - 1, 0)), st.integers(-2, limit + 2), INT32)


@st.composite
def problems(draw):
    num_rows, num_bags = draw(st.integers(0, 40)), draw(st.integers(0, 9))
    dim, count = draw(st.sampled_from([1, 3, 8, 17])), draw(st.sampled_from([0, 1, 5, 70]))
    one_per_bag = draw(st.booleans())
    return EntryGradients(
        ids=jnp.asarray(draw(hnp.arrays(np.int32, count, elements=indices(num_rows)))),
        bags=None if one_per_bag else jnp.asarray(draw(hnp.arrays(np.int32, count, elements=indices(num_bags)))),
        gains=jnp.asarray(draw(hnp.arrays(np.float32, count, elements=st.floats(-4, 4, width=32))))
        if draw(st.booleans())
        else None,
        bag_grads=jnp.asarray(np.random.default_rng(count).normal(size=(num_bags, dim)), jnp.float32),
    ), num_rows


@hypothesis.given(problems(), st.integers(1, 4))
@settings
def test_update(problem, threads):
    grads, num_rows = problem
    dim = grads.bag_grads.shape[1]
    table = jnp.asarray(np.random.default_rng(1).normal(size=(num_rows, dim)), jnp.float32)
    got, () = native.update(sgd_step(dim), table, (), grads, learning_rate(0.5), threads=threads)
    touched, sums = float64_row_grads(grads, num_rows)
    np.testing.assert_array_equal(np.asarray(got)[~touched], np.asarray(table)[~touched])
    np.testing.assert_allclose(got, np.asarray(table, np.float64) - 0.5 * sums, rtol=1e-5, atol=1e-4)


@hypothesis.given(problems(), st.integers(1, 4), st.randoms(use_true_random=False))
@settings
def test_lookup(problem, threads, random):
    grads, num_rows = problem
    count, (num_bags, dim) = len(grads.ids), grads.bag_grads.shape
    table = np.random.default_rng(1).normal(size=(num_rows, dim)).astype(np.float32)
    offsets = np.asarray(sorted(random.randint(0, count) for _ in range(num_bags + 1)), np.int32)
    lookups = Lookups(grads.ids, jnp.zeros(count, jnp.int32), jnp.asarray(offsets), grads.gains, num_bags)
    got = native.lookup(jnp.asarray(table), lookups, threads=threads)
    want = np.zeros((num_bags, dim))
    gains = np.ones(count) if grads.gains is None else np.asarray(grads.gains, np.float64)
    ids = np.asarray(grads.ids)
    for bag in range(num_bags):
        for i in range(offsets[bag], offsets[bag + 1]):
            want[bag] += gains[i] * table[ids[i]] if 0 <= ids[i] < num_rows else 0.0
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


TABLE = sp.TableSpec(name="t", vocabulary_size=30, embedding_dim=5, optimizer=sp.rules.SGD(learning_rate=1.0))
EMBEDDERS = {
    backend: sp.Embedder([sp.FeatureSpec(name="bag", table_spec=TABLE)], backend=backend)
    for backend in ("native", "xla")
}


@hypothesis.given(st.lists(st.lists(st.integers(0, 29), max_size=6), min_size=1, max_size=5))
@hypothesis.settings(max_examples=16, deadline=None, derandomize=True)
def test_from_the_packer_to_the_table(bags):
    bags, results = bags + [[]] * (5 - len(bags)), []  # one number of bags: XLA compiles less
    for embedder in EMBEDDERS.values():
        state = embedder.init(jax.random.key(0))
        batch = embedder.pack({"bag": bags})
        grads = {"bag": jnp.arange(len(bags) * 5.0).reshape(len(bags), 5)}
        activations = embedder.lookup(state, batch)["bag"]
        results.append((np.asarray(activations), np.asarray(embedder.table(embedder.update(state, batch, grads), "t"))))
    (got_activations, got), (want_activations, want) = results
    np.testing.assert_allclose(got_activations, want_activations, rtol=1e-6)
    np.testing.assert_allclose(got, want, rtol=1e-6)
