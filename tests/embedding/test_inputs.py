"""Inputs of every form give the same batch; gains, ignored and hashed ids, size classes."""

from __future__ import annotations

import jax
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparrow as sp
from sparrow.embedding.batches.sizes import size_class
from sparrow.rules import SGD


def embedder(combiner="sum", rows=10, **feature):
    table = sp.TableSpec(
        name="t",
        vocabulary_size=rows,
        embedding_dim=1,
        optimizer=SGD(0.1),
        combiner=combiner,
        initializer=lambda key, shape, dtype: (
            (1.0 + np.arange(shape[0], dtype=np.float32))[:, None] * np.ones(shape[1])
        ),
    )
    return sp.Embedder([sp.FeatureSpec(name="f", table_spec=table, **feature)], backend="xla")


def pooled(emb, given):
    return np.asarray(emb.lookup(emb.init(jax.random.key(0)), emb.pack({"f": given}))["f"])[:, 0]


RAGGED = [[1, 2], [], [3]]


@pytest.mark.parametrize(
    "given",
    [
        RAGGED,
        [np.array([1, 2]), np.array([], int), np.array([3])],
        sp.Ragged([1, 2, 3], [0, 2, 2, 3]),
        sp.Ragged(np.array([1, 2, 3], np.int8), np.array([0, 2, 2, 3], np.int32), [1, 1, 1]),
        pa.array(RAGGED),
        pa.array(RAGGED, pa.large_list(pa.int32())),
        pa.array([[1, 2], None, [3]]),
        pa.array([[9], [1, 2], [], [3]]).slice(1),
        pa.chunked_array([pa.array([[1, 2]]), pa.array([[], [3]], pa.list_(pa.int64()))]),
    ],
    ids=str,
)
def test_ragged_forms_agree(given):
    assert pooled(embedder(), given).tolist() == [5.0, 0.0, 4.0]


@pytest.mark.parametrize(
    "given",
    [[1, 2, 3], (1, 2, 3), np.array([1, 2, 3], np.uint8), pa.array([1, 2, 3]), jax.numpy.array([1, 2, 3])],
    ids=str,
)
def test_one_id_per_example(given):
    assert pooled(embedder(), given).tolist() == [2.0, 3.0, 4.0]


def test_bags_of_one_length():
    assert pooled(embedder(), np.array([[0, 1], [2, 2]])).tolist() == [3.0, 6.0]
    assert pooled(embedder(), pa.FixedSizeListArray.from_arrays(pa.array([0, 1, 2, 2]), 2)).tolist() == [3.0, 6.0]


def test_missing_id_in_a_plain_column_is_an_empty_bag():
    assert pooled(embedder("mean"), pa.array([1, None, 3])).tolist() == [2.0, 0.0, 4.0]


def test_arrow_ids_are_not_copied():
    from sparrow.embedding.batches.inputs import read_arrow

    column = pa.array([[1, 2], [3]])
    values, *_ = read_arrow("f", column)
    assert np.shares_memory(values, column.values.to_numpy())


@pytest.mark.parametrize(
    ("combiner", "expected"),
    [("sum", [2 * 2 + 1 * 3, 0, 5 * 4, 0]), ("mean", [7 / 3, 0, 4, 0]), ("sqrtn", [7 / 5**0.5, 0, 4, 0])],
)
def test_weights(combiner, expected):
    ragged = sp.Ragged([1, 2, 3, 4], [0, 2, 2, 3, 4], [2.0, 1.0, 5.0, 0.0])  # the last bag's weights sum to 0
    np.testing.assert_allclose(pooled(embedder(combiner), ragged), expected, rtol=1e-6)


def test_unit_weights_are_as_none():
    for combiner in ("sum", "mean", "sqrtn"):
        emb = embedder(combiner)
        ones = pooled(emb, sp.Ragged([1, 2, 3], [0, 2, 3], [1, 1, 1]))
        np.testing.assert_allclose(ones, pooled(emb, [[1, 2], [3]]), rtol=1e-7)


def test_ignored_ids_are_as_if_absent():
    for combiner in ("sum", "mean", "sqrtn"):
        emb = embedder(combiner, invalid_ids="ignore")
        np.testing.assert_allclose(pooled(emb, [[1, 99], [-1], [3]]), pooled(emb, [[1], [], [3]]))
    assert pooled(embedder(invalid_ids="ignore"), [1, 99]).tolist() == [2.0, 0.0]


def test_ignored_ids_touch_nothing():
    emb = embedder(invalid_ids="ignore")
    state = emb.init(jax.random.key(0))
    new = emb.update(state, emb.pack({"f": [-5, 1000]}), {"f": np.ones((2, 1), np.float32)})
    np.testing.assert_array_equal(emb.table(new, "t"), emb.table(state, "t"))


def test_hashed_ids_land_in_range_and_valid_ids_stay():
    emb = embedder(rows=1000, invalid_ids="hash")
    ids = np.array([5, -7, 2**62 + 11, 10**12], np.int64)
    batch = emb.pack({"f": ids})
    rows = batch.lookups["t"].ids
    assert rows[0] == 5
    assert ((rows >= 0) & (rows < 1000)).all()
    np.testing.assert_array_equal(rows, emb.pack({"f": ids}).lookups["t"].ids)
    spread = emb.pack({"f": np.arange(10**9, 10**9 + 20_000)}).lookups["t"].ids
    assert np.bincount(spread, minlength=1000).max() < 60  # 20 on average
    assert emb.pack({"f": np.array([2**64 - 1], np.uint64)}).lookups["t"].ids[0] < 1000


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6), st.data())
def test_interleaved_features_keep_their_bags(bags, data):
    """Two ragged features and one of single ids in one stack: every bag holds what was given."""
    table = sp.TableSpec(name="t", vocabulary_size=10, embedding_dim=1, optimizer=SGD(0.1))
    other = sp.TableSpec(name="u", vocabulary_size=10, embedding_dim=1, optimizer=SGD(0.2))
    emb = sp.Embedder(
        [sp.FeatureSpec(name=n, table_spec=t) for n, t in [("a", table), ("b", other), ("c", table)]], backend="xla"
    )
    second = data.draw(st.permutations(bags))
    single = data.draw(st.lists(st.integers(0, 9), min_size=len(bags), max_size=len(bags)))
    packed = emb.pack({"a": bags, "b": second, "c": single})
    ((name, lookups),) = packed.lookups.items()
    given = {"a": (bags, 0), "b": (second, 10), "c": ([[i] for i in single], 0)}
    begin = 0
    for group in dict(packed.groups)[name]:
        for example in range(len(bags)):
            for place, feature in enumerate(group.features):
                bag = begin + example * len(group.features) + place
                entries = slice(lookups.offsets[bag], lookups.offsets[bag + 1])
                expected, first = given[feature]
                assert (lookups.ids[entries] - first).tolist() == expected[example]
                assert (lookups.bags[entries] == bag).all()
        begin += len(bags) * len(group.features)
    assert begin == 3 * len(bags)
    assert (lookups.ids[lookups.offsets[-1] :] == 20).all()
    assert (lookups.bags[lookups.offsets[-1] :] == lookups.num_bags).all()


def test_a_bounded_number_of_shapes():
    sizes = {size_class(n) for n in range(100_000)}
    assert len(sizes) < 64
    assert all(size_class(n) >= n and size_class(n) <= max(8, 1.25 * n) for n in range(1, 5000))


def test_features_of_different_batch_sizes_share_a_stack():
    table = sp.TableSpec(name="t", vocabulary_size=10, embedding_dim=2, optimizer=SGD(1.0))
    emb = sp.Embedder([sp.FeatureSpec(name=n, table_spec=table) for n in "abc"], backend="xla")
    state = emb.with_table(emb.init(jax.random.key(0)), "t", np.arange(20.0).reshape(10, 2))
    batch = emb.pack({"a": [1, 2], "b": [[3], [4, 5], [], [6]], "c": [7, 8]})
    acts = emb.lookup(state, batch)
    assert {name: value.shape for name, value in acts.items()} == {"a": (2, 2), "b": (4, 2), "c": (2, 2)}
    assert acts["b"][:, 0].tolist() == [6.0, 18.0, 0.0, 12.0]
    grads = {name: np.ones(value.shape, np.float32) for name, value in acts.items()}
    moved = emb.table(state, "t") - emb.table(emb.update(state, batch, grads), "t")
    assert moved[:, 0].tolist() == [0, 1, 1, 1, 1, 1, 1, 1, 1, 0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.integers(-3, 12)] * 3), min_size=1, max_size=6), st.sampled_from(["int32", "int64"]))
def test_arrays_of_single_ids_are_packed_as_lists_are(rows, dtype):
    """Many features of one stack at once, or one after the other: the same lookups; ids out of range included."""
    tables = [sp.TableSpec(name=n, vocabulary_size=10, embedding_dim=1, optimizer=SGD(0.1)) for n in "tu"]
    emb = sp.Embedder(
        [sp.FeatureSpec(name=n, table_spec=tables[n == "b"], invalid_ids="ignore") for n in "abc"], backend="xla"
    )
    columns = dict(zip("abc", zip(*rows, strict=True), strict=True))
    arrays = emb.pack({name: np.array(ids, dtype) for name, ids in columns.items()})
    lists = emb.pack({name: list(ids) for name, ids in columns.items()})
    assert arrays.groups == lists.groups
    (found,), (expected,) = arrays.lookups.values(), lists.lookups.values()
    assert found.ids.dtype == np.int32
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert found.num_bags == expected.num_bags == 3 * len(rows)


def test_a_64_bit_id_is_not_cut_to_32():
    with pytest.raises(ValueError, match="id 4294967299 in row 1"):
        embedder().pack({"f": np.array([3, 2**32 + 3])})


def test_stacks_that_are_read_alike_share_their_lookups():
    tables = [sp.TableSpec(name=f"t{d}", vocabulary_size=9, embedding_dim=d, optimizer=SGD(0.1)) for d in (1, 4)]
    emb = sp.Embedder([sp.FeatureSpec(name=t.name, table_spec=t) for t in tables], backend="xla")
    ids = np.array([3, 1, 4])
    wide, deep = emb.pack({"t1": ids, "t4": ids}).lookups.values()
    assert wide.ids is deep.ids
    wide, deep = emb.pack({"t1": ids, "t4": ids + 1}).lookups.values()
    assert deep.ids.tolist() == [4, 2, 5]
