"""Sizes of packed batches: fixed by a capacity, or learned and growing; padding changes no bit."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sparrow as sp
from sparrow.embedding.batches.sizes import Learned

DIMS = (1, 4, 8)


def embedder(backend="auto", combiner="sum"):
    tables = [
        sp.TableSpec(
            name=f"t{dim}",
            vocabulary_size=50,
            embedding_dim=dim,
            optimizer=sp.rules.Adagrad(learning_rate=0.1),
            combiner=combiner,
        )
        for dim in DIMS
    ]
    return sp.Embedder([sp.FeatureSpec(name=t.name, table_spec=t) for t in tables], backend=backend)


def heavy_tailed(rng, batch=64, most=5000):
    """Three ragged features whose lengths have no mean worth the name."""
    inputs = {}
    for dim in DIMS:
        lengths = np.minimum(rng.pareto(1.0, batch) * 2, most).astype(int)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        inputs[f"t{dim}"] = sp.Ragged(rng.integers(0, 50, offsets[-1]), offsets)
    return inputs


def test_heavy_tailed_batches_need_a_handful_of_programs():
    emb, sizes, rng = embedder(), sp.Sizes(), np.random.default_rng(0)
    shapes = [
        tuple(len(lookups.ids) for lookups in emb.pack(heavy_tailed(rng), sizes=sizes).lookups.values())
        for _ in range(1000)
    ]
    assert len(set(shapes)) <= 8
    assert all((np.array(b) >= a).all() for a, b in itertools.pairwise(shapes))
    assert sizes.learned.growths == len(set(shapes))


@pytest.mark.parametrize("stacks", [1, 20])
@pytest.mark.parametrize("shape", [0.8, 1.0, 1.5])
def test_growths_do_not_multiply_over_stacks(stacks, shape):
    rng, sizes = np.random.default_rng(0), sp.Sizes()
    for _ in range(1000):
        counts = np.minimum((rng.pareto(shape, (stacks, 64)) + 1).sum(axis=1), 1e7).astype(int)
        needed = {str(i): int(count) for i, count in enumerate(counts)}
        fitted = sizes.fit(needed)
        assert all(fitted[name] >= count for name, count in needed.items())
    assert sizes.learned.growths <= 8


def test_even_lengths_are_padded_little():
    rng, sizes = np.random.default_rng(0), sp.Sizes()
    for _ in range(500):
        fitted = sizes.fit({"a": int(rng.poisson(5, 64).sum())})
    assert sizes.learned.growths == 1
    assert fitted["a"] <= 1.6 * 5 * 64


def test_sizes_go_on_from_what_was_learned():
    sizes = sp.Sizes()
    sizes.fit({"a": 100})
    sizes.fit({"a": 200})
    assert sp.Sizes(sizes.learned).fit({"a": 150}) == sizes.fit({"a": 150})
    assert sp.Sizes(Learned(2, {"a": 200}, {"a": 448})).fit({"a": 1, "b": 3}) == {"a": 896, "b": 12}


def test_sizes_are_saved_and_loaded():
    sizes, rng = sp.Sizes(), np.random.default_rng(0)
    for _ in range(30):
        sizes.fit({"a": int(rng.pareto(1) * 100), "b/rows": int(rng.pareto(1) * 10)})
    again = sp.Sizes.from_json(sizes.to_json())
    assert again.learned == sizes.learned
    assert again.learned.growths > 2
    for _ in range(30):
        needs = {"a": int(rng.pareto(0.5) * 100), "b/rows": int(rng.pareto(0.5) * 10)}
        assert again.fit(needs) == sizes.fit(needs)
    assert sp.Sizes.from_json(sp.Sizes().to_json()).learned == sp.Sizes().learned


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not what Sizes.to_json writes"),
        ("[1]", "is not what Sizes.to_json writes"),
        ('{"format": 1, "growths": 1}', "is not what Sizes.to_json writes: KeyError"),
        ('{"format": 2, "growths": 1, "stacks": {}}', "format version 2, this version of sparrow reads 1"),
        ('{"format": 1, "growths": true, "stacks": {}}', "must be integers from 0 on"),
        ('{"format": 1, "growths": 1, "stacks": {"a": {"seen": -1, "held": 2}}}', "must be integers from 0 on"),
        ('{"format": 1, "growths": 1, "stacks": {"a": {"seen": 9, "held": 8}}}', "stack 'a' holds 8 ids, fewer than"),
    ],
)
def test_other_texts_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        sp.Sizes.from_json(text)


@pytest.mark.parametrize(
    ("backend", "combiner"),
    [
        ("xla", "mean"),
        ("native", "sum"),
        pytest.param("xla", "sum", marks=pytest.mark.slow),
        pytest.param("native", "mean", marks=pytest.mark.slow),
    ],
)
def test_padding_changes_no_bit(backend, combiner):
    if backend not in sp.backends():
        pytest.skip(f"no {backend} here")
    emb, rng = embedder(backend, combiner), np.random.default_rng(1)
    roomy = sp.Sizes()
    roomy.fit({stack.name: 3001 for stack in emb.stacks})
    states = [emb.init(jax.random.key(0))] * 2
    step = jax.jit(emb.update)

    @jax.jit
    def measured(batch, grads):
        row_grads = emb.row_grads(batch, grads)
        return row_grads.global_norm(), row_grads.scale(0.3).global_norm(), row_grads.all_finite()

    for _ in range(2):
        inputs = heavy_tailed(rng, most=40)
        grads = {f"t{dim}": rng.normal(size=(64, dim)).astype(np.float32) for dim in DIMS}
        tight, padded = emb.pack(inputs), emb.pack(inputs, sizes=roomy)
        assert all(len(padded.lookups[name].ids) > len(tight.lookups[name].ids) for name in padded.lookups)
        seen = [jax.jit(emb.lookup)(state, batch) for state, batch in zip(states, (tight, padded), strict=True)]
        jax.tree.map(np.testing.assert_array_equal, *seen)
        norms = [measured(batch, grads) for batch in (tight, padded)]
        jax.tree.map(np.testing.assert_array_equal, *norms)
        states = [step(state, batch, grads) for state, batch in zip(states, (tight, padded), strict=True)]
        jax.tree.map(np.testing.assert_array_equal, *states)


def test_batches_of_one_capacity_are_stacked_and_scanned():
    emb, rng = embedder(), np.random.default_rng(2)
    given = [heavy_tailed(rng, most=40) for _ in range(4)]
    grads = {f"t{dim}": np.ones((64, dim), np.float32) for dim in DIMS}
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *[emb.pack(one, capacity=3000) for one in given])
    scanned, _ = jax.lax.scan(
        lambda state, batch: (emb.update(state, batch, grads), None), emb.init(jax.random.key(0)), stacked
    )
    state = emb.init(jax.random.key(0))
    for one in given:
        state = emb.update(state, emb.pack(one), grads)
    for name in emb.tables:
        np.testing.assert_allclose(emb.table(scanned, name), emb.table(state, name), rtol=1e-6)


def test_capacities_by_feature():
    emb = embedder()
    inputs = {"t1": [[1, 2, 3], [4]], "t4": [[1], []], "t8": [5, 6]}
    sizes = [
        {name: len(emb.pack(inputs, capacity=capacity).lookups[name].ids) for name in ("t1", "t4", "t8")}
        for capacity in (None, 7, {"t1": 100}, {"t1": 4, "t8": 1})
    ]
    assert sizes == [
        {"t1": 8, "t4": 8, "t8": 2},
        {"t1": 7, "t4": 7, "t8": 2},
        {"t1": 100, "t4": 8, "t8": 2},
        {"t1": 4, "t4": 8, "t8": 2},
    ]
    with pytest.raises(ValueError, match="feature 't1': the batch holds 4 ids, and its capacity is 3; raise it"):
        emb.pack(inputs, capacity={"t1": 3})
    with pytest.raises(ValueError, match="feature 't1': the batch holds 4 ids, and its capacity is 2"):
        emb.pack(inputs, capacity=2)
    with pytest.raises(ValueError, match="capacity has an unknown feature 't3'"):
        emb.pack(inputs, capacity={"t3": 3})
    for wrong in (-1, 2.5, True, "3"):
        with pytest.raises(ValueError, match="must be an integer from 0 on, got"):
            emb.pack(inputs, capacity={"t1": wrong})
