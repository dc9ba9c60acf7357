"""Packing by compiled code and by NumPy: the same arrays, the same errors."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest

import sparrow as sp
from sparrow.kernels import feed
from sparrow.kernels.feed import filling

pytestmark = pytest.mark.skipif(feed.unavailable() is not None, reason=str(feed.unavailable()))


def embedder(combiners, policies, kinds=()):
    kinds = kinds or ["static"] * len(combiners)
    tables = [
        sp.TableSpec(
            name=f"t{i}",
            vocabulary_size=5 + i,
            embedding_dim=4,
            optimizer=sp.rules.SGD(0.1),
            combiner=combiner,
            dynamic=sp.Dynamic() if kind == "dynamic" else None,
        )
        for i, (combiner, kind) in enumerate(zip(combiners, kinds, strict=True))
    ]
    features = [
        sp.FeatureSpec(
            name=f"f{i}",
            table_spec=table,
            invalid_ids="ignore" if kind == "dynamic" else policy,
            **({"combiner": None} if kind == "ordered" else {}),
        )
        for i, (table, policy, kind) in enumerate(zip(tables, policies, kinds, strict=True))
    ]
    return sp.Embedder(features)


@st.composite
def bags(draw, batch, low, high):
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    ids = st.integers(low, high)
    kind = draw(st.sampled_from(["single", "strided", "masked", "ragged", "weighted"]))
    if kind in ("single", "strided", "masked"):
        values = np.array(draw(st.lists(ids, min_size=batch, max_size=batch)), dtype)
        if kind == "masked":
            return np.ma.MaskedArray(values, draw(st.lists(st.booleans(), min_size=batch, max_size=batch)))
        return values if kind == "single" else np.stack([values, values], axis=1)[:, 1]
    lengths = draw(st.lists(st.integers(0, 3), min_size=batch, max_size=batch))
    offsets = np.cumsum([0, *lengths])
    values = np.array(draw(st.lists(ids, min_size=int(offsets[-1]), max_size=int(offsets[-1]))), dtype)
    weights = st.sampled_from([0.0, 1.0, 0.1, -0.7, 3.5, float("nan")] if high > 8 else [0.0, 1.0, 0.1, -0.7, 3.5])
    given = np.array(draw(st.lists(weights, min_size=len(values), max_size=len(values))), np.float32)
    return sp.Ragged(values, offsets, given if kind == "weighted" else None)


@st.composite
def cases(draw):
    count = draw(st.integers(1, 3))
    combiners = draw(st.lists(st.sampled_from(["sum", "mean", "sqrtn"]), min_size=count, max_size=count))
    policies = draw(st.lists(st.sampled_from(["error", "ignore", "hash"]), min_size=count, max_size=count))
    is_good = draw(st.booleans())
    sizes = (
        [draw(st.integers(0, 6))] * count if draw(st.booleans()) else [draw(st.integers(0, 6)) for _ in range(count)]
    )
    inputs = {f"f{i}": draw(bags(sizes[i], *((0, 4) if is_good else (-2, 9)))) for i in range(count)}
    kinds = draw(st.lists(st.sampled_from(["static", "dynamic", "ordered"]), min_size=count, max_size=count))
    return combiners, policies, kinds, inputs


def packed(emb, inputs):
    try:
        return emb.pack(inputs)
    except ValueError as error:
        return str(error)


@hypothesis.given(cases())
@hypothesis.settings(max_examples=200, deadline=None)
def test_compiled_and_numpy_agree(case):
    combiners, policies, kinds, inputs = case
    emb = embedder(combiners, policies, kinds)
    ours = packed(emb, inputs)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filling, "library", lambda: None)
        theirs = packed(emb, inputs)
    if isinstance(theirs, str):
        assert ours == theirs
        return
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


def test_what_a_pipeline_gives_is_packed_by_compiled_code(monkeypatch):
    emb = embedder(["mean", "sum"], ["ignore", "ignore"])
    rows = np.array([[1, -1], [3, 2]], np.int32)
    inputs = {"f0": sp.Ragged(np.array([1, 2, 3], np.int32), np.array([0, 2, 3]), None), "f1": rows[:, 1]}
    monkeypatch.setattr("sparrow.embedding.batches.columns.read_input", lambda *_: pytest.fail("NumPy was asked"))
    lookups = emb.pack(inputs).lookups
    (held,) = lookups.values()
    assert held.ids.tolist()[:5] == [5 + 6, 7, 1, 2, 3]
    assert held.gains.tolist()[:5] == [1.0, 1.0, 0.5, 0.5, 1.0]
