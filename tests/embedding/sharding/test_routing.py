"""Where rows are, how evenly, and the arrays that are exchanged: compiled code and NumPy give the same."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sparrow as sp
from sparrow.embedding import imagined_mesh
from sparrow.embedding.packed_batch import Group
from sparrow.embedding.sharding import routing
from sparrow.embedding.sharding.layout import Layout, turn
from sparrow.embedding.sharding.parts import Part, split
from sparrow.kernels import Lookups, feed


@pytest.mark.parametrize("shards", [1, 2, 3, 8, 64, 1000])
def test_every_row_has_one_place(shards):
    layout = Layout(5 * shards + 3, shards, (0, shards + 1, 3 * shards + 2))
    rows = np.arange(layout.num_rows)
    owners, local = layout.place(rows)
    assert len(set(zip(owners.tolist(), local.tolist(), strict=True))) == len(rows)
    assert (layout.logical(owners, local) == rows).all()
    assert local.max() < layout.local_rows
    # Tables begin on each shard where their first row there is, or would be.
    for shard in range(min(shards, 9)):
        held = np.sort(rows[owners == shard])
        first = np.searchsorted(held, layout.first_rows)
        assert (layout.local_first_rows[shard] == first).all()
        tables = np.searchsorted(layout.first_rows, held, side="right") - 1
        if shards in (3, 64) and shard == 1:
            own = layout.table_rows(jnp.int32(shard))[: len(held)]
            assert (np.asarray(own) == held - np.array(layout.first_rows)[tables]).all()


def test_devices_compute_the_same_turns():
    blocks = np.random.default_rng(0).integers(0, 2**31, 1000)
    for shards in (3, 8, 12345):
        assert (np.asarray(turn(jnp.asarray(blocks, jnp.int32), shards, jnp)) == turn(blocks, shards)).all()


@st.composite
def parts(draw):
    shards, num_rows = draw(st.sampled_from([1, 2, 3, 8, 64])), draw(st.integers(1, 2000))
    lengths = draw(st.lists(st.integers(0, 5), max_size=30))
    ragged, weighted = draw(st.booleans()), draw(st.booleans())
    if not ragged:
        lengths = [1] * len(lengths)
    count = sum(lengths)
    ids = np.array(draw(st.lists(st.integers(0, num_rows + 1), min_size=count, max_size=count)), np.int32)
    bags = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths) if ragged else None
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32) if ragged else None
    gains = np.linspace(0.5, 2, count, dtype=np.float32) if weighted and ragged else None
    return Layout(num_rows, shards, (0,)), Part(ids, bags, gains, offsets, len(lengths))


def assert_same(a, b):
    for x, y in zip(a, b, strict=True):
        assert x.dtype == y.dtype, (x, y)
        assert (x == y).all(), (x, y)


@settings(max_examples=150, deadline=None)
@given(parts(), st.integers(0, 3), st.booleans())
def test_compiled_code_and_numpy_route_alike(given, spare, weighted):
    if feed.library() is None:
        pytest.skip("no compiler")
    layout, part = given
    weighted |= part.gains is not None
    ragged = part.bags is not None
    made = []
    for library in (feed.library(), None):
        with mock.patch.object(feed, "library", lambda library=library: library):
            pooled, rows = routing.route_pooled(layout, part), routing.route_rows(layout, part)
            sums, entries = (max(1, int(counts.max())) + spare for counts in (pooled.sums, pooled.entries))
            distinct, size = max(1, int(rows.rows.max())) + spare, len(part.ids) + spare
            laid = [
                routing.lay_out_pooled(layout, [part], [pooled], entries if ragged else 0, sums, weighted),
                routing.lay_out_rows(layout, [part], [rows], size if ragged else 0, distinct, weighted),
            ]
            made.append([*pooled, *rows, *jax.tree.leaves(laid)])
    assert_same(*made)


def test_every_entry_arrives_at_its_owner():
    """No id is dropped: what owners receive is the batch, and every bag gets the sums of all its owners."""
    rng = np.random.default_rng(0)
    layout = Layout(100, 4, (0,))
    lengths = rng.integers(0, 6, 50)
    bags = np.repeat(np.arange(50, dtype=np.int32), lengths)
    ids = rng.integers(0, 100, len(bags)).astype(np.int32)
    part = Part(ids, bags, None, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), 50)
    route = routing.route_pooled(layout, part)
    batch = routing.lay_out_pooled(layout, [part], [route], int(route.entries.max()), int(route.sums.max()), False)
    local = batch.block[:, : batch.entries]
    received = [layout.logical(shard, of_shard[of_shard < layout.local_rows]) for shard, of_shard in enumerate(local)]
    assert sorted(np.concatenate(received).tolist()) == sorted(ids.tolist())
    values = rng.normal(size=100)
    owners, _ = layout.place(ids)
    sums, bag_of = np.zeros(4 * batch.vectors), batch.back.ids.reshape(4, -1)
    for shard in range(4):
        for bag in range(50):
            slot = np.flatnonzero(bag_of[shard] == bag)
            if len(slot):
                sums[shard * batch.vectors + slot[0]] = values[ids[(owners == shard) & (bags == bag)]].sum()
    for bag in range(50):
        found = sums[batch.home.ids[batch.home.offsets[bag] : batch.home.offsets[bag + 1]]].sum()
        assert np.isclose(found, values[ids[bags == bag]].sum())
    asked = routing.route_rows(layout, part)
    asked_for = routing.lay_out_rows(layout, [part], [asked], len(ids), int(asked.rows.max()), False).wanted
    assert sorted(set(ids.tolist())) == sorted(
        np.concatenate([layout.logical(o, r[r < layout.local_rows]) for o, r in enumerate(asked_for)]).tolist()
    )


def test_parts_of_features_with_several_batch_sizes():
    """Each device takes its examples of every group."""
    groups = (Group(("a", "b"), 4), Group(("c",), 2))  # bags a0 b0 a1 b1 a2 b2 a3 b3 c0 c1
    lengths = np.array([1, 2, 0, 1, 3, 0, 1, 1, 2, 1])
    bags = np.repeat(np.arange(10, dtype=np.int32), lengths)
    ids = np.arange(len(bags), dtype=np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    first, second = split(Lookups(ids, bags, offsets, None, 10), groups, 2)
    assert first.ids.tolist() == [0, 1, 2, 3, 9, 10]
    assert first.bags.tolist() == [0, 1, 1, 3, 4, 4]
    assert first.offsets.tolist() == [0, 1, 3, 3, 4, 6]
    assert second.ids.tolist() == [4, 5, 6, 7, 8, 11]
    assert second.bags.tolist() == [0, 0, 0, 2, 3, 4]
    assert (first.num_bags, second.num_bags) == (5, 5)


ROWS = 1_000_000


def draws(rng):
    weights = 1 / np.arange(1, ROWS + 1) ** 1.05
    steps = np.cumsum(weights / weights.sum())

    def zipf(count):
        return np.minimum(np.searchsorted(steps, rng.random(count)), ROWS - 1)

    return {
        "zipf": zipf,
        "strided": lambda count: zipf(count) // 8 * 8,
        "newest": lambda count: ROWS - 1 - rng.integers(0, ROWS // 50, count),
    }


@pytest.mark.parametrize(("shards", "limit"), [(8, 1.3), (64, 1.6)])
@pytest.mark.parametrize("kind", ["zipf", "strided", "newest"])
def test_pairs_are_even(shards, limit, kind):
    draw = draws(np.random.default_rng(0))[kind]
    layout = Layout(ROWS, shards, (0,))
    fullest, total = 0, 0
    for _ in range(shards):
        ids = draw(16384).astype(np.int32)
        counts = routing.route_rows(layout, Part(ids, None, None, None, len(ids))).rows
        fullest, total = max(fullest, counts.max()), total + counts.sum()
    assert fullest / (total / shards**2) <= limit


def test_room_for_sums_ends_at_the_bags():
    """A bag has one sum at each owner at most: headroom beyond that would be sent for nothing."""
    table = sp.TableSpec(name="t", vocabulary_size=1000, embedding_dim=4, optimizer=sp.rules.SGD(0.1))
    mesh = imagined_mesh(sp.Embedder([sp.FeatureSpec(name="f", table_spec=table)]), 2, "pooled")
    batch = mesh.measure({"f": np.arange(960).reshape(24, 40)})
    room = sp.Sizes().fit(mesh.settle(batch.needs))
    assert room["t/sums"] > 12
    [traffic] = mesh.traffic(batch, room).values()
    assert traffic.room == batch.pack(room).lookups["t"].vectors == 12
    assert traffic.padding == 0
